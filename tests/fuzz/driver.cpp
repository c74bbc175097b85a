// SPDX-License-Identifier: Apache-2.0
// For compilers without libFuzzer: a main that replays a corpus and then tries random mutations of it. It takes the
// same arguments, as far as they are used here:
//   program [-max_total_time=SECONDS] [-runs=COUNT] [-seed=NUMBER] [-dict=FILE] FILE|DIRECTORY...
// An input that breaks something is left in ./crash-input, which is an argument to try it again.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_set_death_callback(void (*callback)());
#endif

namespace {

using Bytes = std::string;

constexpr unsigned longest_s = 20;        // for one input
constexpr size_t largest_input = 1 << 14;  // of what mutation makes

const Bytes *current = nullptr;

void keep_current() {
    const int file = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file >= 0 && current != nullptr) {
        [[maybe_unused]] const ssize_t written = write(file, current->data(), current->size());
        close(file);
    }
}

void on_signal(int number) {
    keep_current();
    const char *text = number == SIGALRM ? "broken: it takes too long; see crash-input\n" : "see crash-input\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
    signal(number, SIG_DFL);
    raise(number);
}

void run(const Bytes &input) {
    current = &input;
    alarm(longest_s);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t *>(input.data()), input.size());
    alarm(0);
}

Bytes contents(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Lines of a libFuzzer dictionary: "token", with \\, \" and \xAB in it.
std::vector<Bytes> read_dictionary(const std::filesystem::path &path) {
    std::vector<Bytes> tokens;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] != '"' || line.back() != '"') {
            continue;
        }
        Bytes token;
        for (size_t i = 1; i + 1 < line.size(); ++i) {
            if (line[i] == '\\' && line[i + 1] == 'x') {
                token += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16));
                i += 3;
            } else {
                i += line[i] == '\\';
                token += line[i];
            }
        }
        tokens.push_back(token);
    }
    return tokens;
}

class Mutator {
public:
    Mutator(std::vector<Bytes> corpus, std::vector<Bytes> tokens, uint64_t seed)
        : corpus_(std::move(corpus)), tokens_(std::move(tokens)), random_(seed) {}

    Bytes next() {
        Bytes text = corpus_[below(corpus_.size())];
        for (size_t left = 1 + below(6); left != 0; --left) {
            change(text);
        }
        text.resize(std::min(text.size(), largest_input));
        return text;
    }

private:
    size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

    void change(Bytes &text) {
        const size_t at = below(text.size() + 1), length = below(std::min<size_t>(text.size() - at, 24) + 1);
        switch (below(8)) {
            case 0: text.replace(at, length, 1, static_cast<char>(below(256))); break;
            case 1: text.erase(at, length); break;
            case 2: text.insert(below(text.size() + 1), text.substr(at, length)); break;
            case 3: text.resize(at); break;
            case 4: text.insert(at, corpus_[below(corpus_.size())].substr(0, 1 + below(400))); break;
            case 5: replace_number(text, at); break;
            default:
                if (!tokens_.empty()) {
                    text.replace(at, below(2) * length, tokens_[below(tokens_.size())]);
                }
        }
    }

    // The next number becomes another one.
    void replace_number(Bytes &text, size_t from) {
        static const char digits[] = "0123456789";
        static const char *const numbers[] = {"0", "-1", "1", "2", "127", "65536", "2147483648", "140737488355328",
                                              "9223372036854775807", "18446744073709551615", "1e308", "1e-320", "nan",
                                              "inf", "0.5", "-9223372036854775808", "99999999999999999999"};
        const size_t start = text.find_first_of(digits, from);
        if (start != Bytes::npos) {
            const size_t end = std::min(text.find_first_not_of(digits, start), text.size());
            text.replace(start, end - start, numbers[below(std::size(numbers))]);
        }
    }

    const std::vector<Bytes> corpus_, tokens_;
    std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char **argv) {
    uint64_t seconds = 0, runs = UINT64_MAX, seed = 1;
    std::vector<Bytes> corpus, tokens;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const auto value = [&](const char *name) {
            const size_t length = std::strlen(name);
            return argument.compare(0, length, name) == 0 ? argument.c_str() + length : nullptr;
        };
        if (const char *text = value("-max_total_time=")) {
            seconds = std::stoull(text);
        } else if (const char *count = value("-runs=")) {
            runs = std::stoull(count);
        } else if (const char *number = value("-seed=")) {
            seed = std::stoull(number);
        } else if (const char *path = value("-dict=")) {
            tokens = read_dictionary(path);
        } else if (std::filesystem::is_directory(argument)) {
            std::vector<std::filesystem::path> files;
            for (const auto &entry : std::filesystem::directory_iterator(argument)) {
                files.push_back(entry.path());
            }
            std::sort(files.begin(), files.end());
            for (const auto &file : files) {
                corpus.push_back(contents(file));
            }
        } else if (std::filesystem::exists(argument)) {
            corpus.push_back(contents(argument));
        } else {
            std::fprintf(stderr, "%s is neither an option nor a file\n", argv[i]);
            return 2;
        }
    }
    for (const int number : {SIGALRM, SIGABRT}) {
        signal(number, on_signal);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(keep_current);
#endif
    for (const Bytes &input : corpus) {
        run(input);
    }
    std::printf("%zu inputs replayed\n", corpus.size());
    if (corpus.empty() || (seconds == 0 && runs == UINT64_MAX)) {
        return 0;
    }
    Mutator mutator(corpus, tokens, seed);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    uint64_t done = 0;
    for (; done < runs && (seconds == 0 || std::chrono::steady_clock::now() < end); ++done) {
        run(mutator.next());
    }
    std::printf("%llu mutations with seed %llu\n", static_cast<unsigned long long>(done),
                static_cast<unsigned long long>(seed));
}
