// The host body of vote.cuh, which documents the function and includes this file.
#pragma once
#include "interface.h"

using emulator::barrier_any;
