# SPDX-License-Identifier: Apache-2.0
"""The text of the rendered pages, one entry a page."""

PAGES = (
    """The ferry left the northern quay at 6:45 and crossed the sound in a little under forty minutes. On
    board were 118 passengers, three lorries of timber and a crate of lemons. The captain kept a notebook in
    which every crossing had its own line: the hour, the wind, the height of the tide and, in a smaller
    hand, what the cook had made for lunch. After thirty years the notebooks filled two shelves. Scientists
    came to copy the tides. They found that the lunches, too, followed the moon: fish soup at spring tide,
    pancakes at neap. The cook denied it. He cooked what the boats brought in, he said, and what the boats
    brought in was not up to him. The scientists wrote that down as well and stayed for the pancakes.""",
    """A clock with one hand is not broken. It tells the hour as well as any other, and between two hours it
    asks for a guess. In the market towns of the valley such clocks were common until the railway came, for
    nobody had needed the minutes before. The station master brought them along with the timetable: 7:12,
    9:38, 11:05, 14:50. Within a year the baker closed at noon exactly. The last tower to get a second hand
    was that of the abbey. It was paid for by a traveller who had missed his train by reading the tower, and
    it came with a condition: once a year, on the longest day, the new hand is taken off and cleaned, and
    until the evening nobody can be late.""",
    """To mend a kettle, first find the leak. Fill it to the brim, set it on dry paper and wait; the stain
    will show where the seam has opened. Clean the metal until it shines, warm it evenly and let the solder
    run by itself. Do not hurry. A seam that was cooled with water looks sound for a week and fails in the
    eighth. Polish last, and only when the kettle has held water overnight. Write the date on the bottom
    with a nail. The next person who mends it will want to know how long your work has lasted, and whether
    it was you. Most kettles carry four or five dates; the record, in a farmhouse near the pass, is 23.""",
    """The library owns 2,417 maps, and each of them is wrong in its own way. The oldest shows an island
    that no ship has found again. The newest leaves out the footpath behind the mill, which everybody uses.
    Between them lie two centuries of rivers that moved, bridges that were planned and never built, and one
    lake drawn twice because two surveyors could not agree on its name. Readers may correct the maps in
    pencil. Once a year the librarian goes through the corrections, walks to the places and inks what she
    can confirm. She wears out a pair of boots each spring. The footpath is in pencil still; she takes it
    every morning and has never thought of it as something to look up.""",
    """Snow fell from Thursday to Sunday, 64 centimetres in all. The school stayed shut, the post came by
    sledge and the only telephone in the village stood in the kitchen of the inn. People who had not spoken
    for months met there in stocking feet, waiting for their turn. When the road was cleared on Monday, two
    weddings had been agreed upon and one old quarrel about a fence was over. The innkeeper counted 212
    calls and asked for no money. He had sold 90 litres of cider. In the following winter the company
    offered a line to each house, at a fair price, and the whole village declined with thanks.""",
    """Good bread needs four things: flour, water, salt and time. The first three cost very little. Of time
    the dough takes what it wants, and it wants more in winter. Knead until the surface is smooth, fold it
    every half hour, and leave it in a cool room overnight. In the morning the oven should be hot before
    anybody is hungry. The crust sings when it comes out; listen for it. A loaf of 750 grams bakes for 45
    minutes, a loaf twice as heavy for about 70. Knock on the bottom to be sure: a dull sound means ten
    minutes more. Cutting it warm is a mistake that everybody makes, and the first slice is the best one all
    the same.""",
    """The lighthouse was built in 1871 and has been lit on every night since, except for one. The keeper of
    that night, a careful man, had gone down to the beach to look at a stranded whale. He wrote the truth in
    the log and lost a month of pay. The whale went back to sea with the morning tide. Visitors still ask
    for the page, which is shown to them under glass from 10 to 16 o'clock. The lamp itself is smaller than
    they expect. What carries its light for 19 miles is the lens, a beehive of glass rings as tall as a man,
    which floats on quicksilver and can be turned with one finger. Children are allowed to try. The light is
    electric now, but the keepers of the harbour still call the dark hour before dawn the hour of the
    whale.""",
    """An orchard of 90 trees gives work to one family and pleasure to several. The early pears are ripe in
    August and must be eaten within days. Apples wait: some until Christmas, a few until the blossom of the
    following year. The best keeper is a small green fruit that tastes of nothing in October and of quinces
    in March. Its name was lost, so the neighbours call it Patience. Twice a nursery has offered money for a
    graft of it. The family gave the graft and kept the money out of it, on one condition: that the name be
    printed in the catalogue as it is, between the prices, where hurried people would read it.""",
    """Two rules held for the workshop. Every tool goes back to its hook before supper, and whoever breaks
    one says so. Nobody was ever scolded for a broken chisel, but a missing one stopped the work until it
    was found. Over the door hung a saw with 3 teeth left, 41 years old, as a reminder that things may be
    worn out and still have a place. Apprentices were asked to greet it. They laughed on the first morning
    and had stopped laughing by the end of the month, when they knew what the saw had cut: the beams of the
    church, the stairs of the school, the table at which they ate.""",
    """The night train had eleven carriages and one violin. It belonged to a girl of about ten who practised
    scales from Vienna to the border, softly, with a handkerchief under the strings. Nobody complained. At
    the border a customs officer asked what she had to declare. She thought about it, lifted the bow and
    played the slow movement from memory. He stamped her ticket and took off his cap. In the next carriage a
    man who had not slept for 3 nights fell asleep and missed his station, and the one after that. He woke
    by the sea. He had never seen it before, and it was, he said later, worth the fare: 14.60 return, second
    class.""",
)
