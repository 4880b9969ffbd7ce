// The host bodies of dependent.cuh, which documents each function and includes this file.
#pragma once
#include "interface.h"

using emulator::grid_dependency_wait;
DEVICE void launch_dependents() {} // launches run one after the other
template <int BYTES, class T>
DEVICE Vec<BYTES> load_finished(gptr<T> p, bool predicate, CALLER) {
    Vec<BYTES> v = Vec<BYTES>::zero();
    if (predicate)
        emulator::load_finished(v.word, p.address, BYTES, site);
    return v;
}
