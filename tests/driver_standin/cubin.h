// A cubin as a driver reads it: the target in the ELF header, and of each entry what .nv.info says of its launch.
//
// NVIDIA documents no format of .nv.info. It is a list of records: format and attribute in a byte each, then 16 bits
// that are the value, or with format 4 the bytes of the value behind them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <map>
#include <string>
#include <vector>

struct Entry {
    std::string name;
    std::vector<unsigned> parameters; // bytes, by position
    unsigned threads = 1024;          // per block, by the launch bounds
    unsigned cluster = 1;             // blocks
    unsigned registers = 0;           // per thread
    unsigned static_shared = 0;       // bytes, with those that the system reserves
};

struct Cubin {
    unsigned target = 0;   // 90 for sm_90
    bool specific = false; // sm_90a: for this very compute capability
    std::map<std::string, Entry> entries;

    // Returns an empty text, or why this is no cubin.
    std::string read(const uint8_t *image);

  private:
    const uint8_t *image = nullptr;
    const Elf64_Shdr *sections = nullptr;

    void read_entry(const uint8_t *records, uint64_t size, Entry &entry);
    void read_registers(const uint8_t *records, uint64_t size, const Elf64_Shdr &symbols);
    template <class Each>
    void for_each_record(const uint8_t *records, uint64_t size, Each each);
};

template <class T>
T load(const uint8_t *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

inline std::string Cubin::read(const uint8_t *from) {
    image = from;
    if (memcmp(image, ELFMAG, SELFMAG) != 0 || image[EI_CLASS] != ELFCLASS64) {
        return "no ELF file of 64 bits";
    }
    const auto header = load<Elf64_Ehdr>(image);
    if (header.e_machine != 190) { // EM_CUDA
        return "an ELF file for another machine";
    }
    // NVRTC 12 writes both: an older form up to compute capability 9.0, a newer one beyond.
    const bool newer = image[EI_OSABI] == 0x41;
    target = newer ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff;
    specific = header.e_flags & (newer ? 0x8 : 0x800);
    sections = reinterpret_cast<const Elf64_Shdr *>(image + header.e_shoff);
    const char *names = reinterpret_cast<const char *>(image + sections[header.e_shstrndx].sh_offset);
    const std::string info = ".nv.info", shared = ".nv.shared.";
    for (int i = 0; i < header.e_shnum; ++i) {
        const std::string name = names + sections[i].sh_name;
        if (name.compare(0, info.size() + 1, info + ".") == 0) {
            Entry &entry = entries[name.substr(info.size() + 1)];
            entry.name = name.substr(info.size() + 1);
            read_entry(image + sections[i].sh_offset, sections[i].sh_size, entry);
        }
    }
    for (int i = 0; i < header.e_shnum; ++i) {
        const std::string name = names + sections[i].sh_name;
        if (name == info) {
            read_registers(image + sections[i].sh_offset, sections[i].sh_size, sections[sections[i].sh_link]);
        } else if (name.compare(0, shared.size(), shared) == 0 && entries.count(name.substr(shared.size()))) {
            entries[name.substr(shared.size())].static_shared = sections[i].sh_size;
        }
    }
    return entries.empty() ? "a cubin without entries" : "";
}

template <class Each>
void Cubin::for_each_record(const uint8_t *records, uint64_t size, Each each) {
    for (uint64_t at = 0; at + 4 <= size;) {
        const unsigned format = records[at], attribute = records[at + 1], bytes = load<uint16_t>(records + at + 2);
        each(attribute, records + at + 4, bytes);
        at += format == 4 ? 4 + bytes : 4;
    }
}

inline void Cubin::read_entry(const uint8_t *records, uint64_t size, Entry &entry) {
    for_each_record(records, size, [&](unsigned attribute, const uint8_t *value, unsigned) {
        if (attribute == 0x17) { // a parameter: index, position (16 bits), offset (16 bits), size in the upper 14 bits
            const unsigned position = load<uint16_t>(value + 4);
            entry.parameters.resize(std::max<size_t>(entry.parameters.size(), position + 1));
            entry.parameters[position] = load<uint32_t>(value + 8) >> 18;
        } else if (attribute == 0x05) { // most threads along x, y and z
            entry.threads = load<uint32_t>(value) * load<uint32_t>(value + 4) * load<uint32_t>(value + 8);
        } else if (attribute == 0x3d) { // blocks of a cluster along x, y and z
            entry.cluster = load<uint32_t>(value) * load<uint32_t>(value + 4) * load<uint32_t>(value + 8);
        }
    });
}

inline void Cubin::read_registers(const uint8_t *records, uint64_t size, const Elf64_Shdr &symbols) {
    const char *names = reinterpret_cast<const char *>(image + sections[symbols.sh_link].sh_offset);
    for_each_record(records, size, [&](unsigned attribute, const uint8_t *value, unsigned) {
        if (attribute == 0x2f) { // symbol, registers
            const uint8_t *at = image + symbols.sh_offset + load<uint32_t>(value) * sizeof(Elf64_Sym);
            const auto found = entries.find(names + load<Elf64_Sym>(at).st_name);
            if (found != entries.end()) {
                found->second.registers = load<uint32_t>(value + 4);
            }
        }
    });
}
