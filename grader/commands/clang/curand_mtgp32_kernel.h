// Empty: clang includes this header of cuRAND, which only a whole toolkit has. No kata uses it.
