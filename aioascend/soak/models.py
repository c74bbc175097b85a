# SPDX-License-Identifier: Apache-2.0
"""The model that lanes run, and the streams it was run on."""

from __future__ import annotations

from dataclasses import dataclass, field

from aioascend import Device, Model
from aioascend.soak.contents import TAGS
from aioascend.soak.ledger import Ledger, Link, Session

__all__ = ["SharedModel", "load_model"]

MODEL = f"""
name = "soak"
[[inputs]]
name = "x"
dtype = "uint8"
shape = [{TAGS}]
[[outputs]]
name = "copy"
dtype = "uint8"
shape = [{TAGS}]
fill = "copy"
[[outputs]]
name = "sum"
dtype = "int32"
shape = [1]
fill = "sum"
""".encode()


@dataclass
class SharedModel:
    """A model that is run on several streams; the runtime lets each run wait for the one before.

    Attributes:
        own: Its own stream, where it runs when it is called.
    """

    model: Model
    ledger: Ledger
    own: Session
    users: list[Session] = field(default_factory=list)

    def link(self, session: Session) -> None:
        """A run is about to be submitted to the stream."""
        if self.users and self.users[-1] is not session:
            self.ledger.links.append(Link(self.users[-1], None, session, None, self.ledger.tick()))
        self.users.append(session)


async def load_model(npu: Device, ledger: Ledger) -> SharedModel:
    """Load it, and begin to note what is done with it."""
    model = await npu.load_model(MODEL)
    return SharedModel(model, ledger, ledger.open(model.stream, tracked=False))
