// Calls of the stand-in, each a line of JSON in the file that STANDIN_CALLS names.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

// A line of JSON; keys and texts need no escapes, but for the entry that a caller names.
class Line {
  public:
    explicit Line(const char *call) { text = std::string("{\"call\": \"") + call + "\""; }

    void number(const char *key, uint64_t value) { add(key, std::to_string(value)); }

    void words(const char *key, const char *value) {
        std::string safe;
        for (; *value; ++value) {
            safe += *value == '"' || *value == '\\' || (unsigned char)*value < 32 ? '?' : *value;
        }
        add(key, "\"" + safe + "\"");
    }

    void list(const char *key, const std::vector<uint64_t> &values) {
        std::string body;
        for (uint64_t each : values) {
            body += (body.empty() ? "" : ", ") + std::to_string(each);
        }
        add(key, "[" + body + "]");
    }

    void bytes(const char *key, const void *from, size_t size) {
        std::string hex;
        for (size_t i = 0; i < size; ++i) {
            hex += "0123456789abcdef"[static_cast<const uint8_t *>(from)[i] >> 4];
            hex += "0123456789abcdef"[static_cast<const uint8_t *>(from)[i] & 15];
        }
        add(key, "\"" + hex + "\"");
    }

    // Writes the line with the result of the call, and with the rule that the caller broke; returns the result.
    int end(int result, const std::string &why = "") {
        number("result", result);
        words("why", why.c_str());
        text += "}\n";
        const char *path = getenv("STANDIN_CALLS");
        const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
        const bool written = file >= 0 && write(file, text.data(), text.size()) == (ssize_t)text.size();
        if (file >= 0) {
            close(file);
        }
        if (!written) {
            fprintf(stderr, "STANDIN_CALLS names no file that can be written\n");
            abort();
        }
        return result;
    }

  private:
    std::string text;
    void add(const char *key, const std::string &value) { text += std::string(", \"") + key + "\": " + value; }
};
