// The host body of cuda/vote.cuh, which documents the function and includes this file.
#pragma once
#include "interface.h"

DEVICE bool barrier_any(bool value, CALLER) {
    return emulator::barrier_any(value, file, line);
}
