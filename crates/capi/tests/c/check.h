/* Checks of the tests in C: a failed one prints where, and the last error, and ends the program. */

#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vfscale.h"

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition,    \
                    vfscale_error());                                                         \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

/* Checks that a call returns a number. */
#define IS(number, call)                                                                      \
    do {                                                                                      \
        long long got_ = (long long)(call);                                                   \
        if (got_ != (long long)(number)) {                                                    \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld; last error: %s\n", __FILE__,        \
                    __LINE__, #call, got_, (long long)(number), vfscale_error());             \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

#define OK(call) IS(0, call)

#endif
