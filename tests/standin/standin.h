/*
 * A stand-in for the CUDA runtime: every function of cudart_static that the library calls, on simulated devices, so
 * that planning, packing and launching run where there is no GPU. It is linked in place of cudart_static
 * (tconv_standin).
 *
 * It computes nothing. It checks what the runtime and the driver would refuse, keeps the calling thread's device and
 * last error, and records every call in its order. Kernels never run: what they write, whether they fit into registers
 * as they are launched, and whatever takes place on a stream is not simulated. What it says of a kernel (threads,
 * registers, static shared memory) is true where the kernels' table was read, and the most that any kernel may have
 * elsewhere.
 *
 * Recording is for one thread at a time; the library may be used by more while nothing is recorded.
 */
#ifndef TCONV_TESTS_STANDIN_H
#define TCONV_TESTS_STANDIN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define STANDIN_MAX_DEVICES 4

/* --------------------------------------------------------------------------------------------------------- machines */

typedef struct standin_device {
    const char *name;
    int major, minor; /* compute capability */
    int multiprocessors;
    int block_shared;          /* bytes of shared memory that a block may have when it asks for them */
    int multiprocessor_shared; /* bytes */
    int l2_bytes;
    size_t memory_bytes;
    bool memory_pools;
} standin_device;

extern const standin_device standin_h200, standin_a100;

/* Says which devices there are; the first use of the library has to come later, because it looks once. At the start
 * there is one H200. count 0: cudaGetDeviceCount fails with error. */
void standin_set_devices(const standin_device *devices, int count, cudaError_t error);

/* The version of CUDA that the driver is for; at the start that of the headers. */
void standin_set_driver_version(int version);

/* ---------------------------------------------------------------------------------------------------------- kernels */

typedef struct standin_kernel standin_kernel;

/* Reads the table that kernels.py makes of the objects. Returns how many of the registered kernels it knows; -1
 * where the file cannot be read. */
int standin_read_kernels(const char *path);

/* Number of kernels that the library has registered. */
int standin_kernel_count(void);

/* The kernel registered as the index-th. */
const standin_kernel *standin_kernel_at(int index);

/* Whether the build has code of the kernel that runs on the device. */
bool standin_has_image(const standin_kernel *kernel, const standin_device *device);

/* The kernel's mangled name, and the digest of its machine code; 0 where the table does not have it. */
const char *standin_kernel_name(const standin_kernel *kernel);
uint64_t standin_kernel_code(const standin_kernel *kernel);

/* ------------------------------------------------------------------------------------------------------------ calls */

typedef struct standin_call {
    const char *name; /* of the function */
    int result;       /* cudaError_t, or CUresult of the driver's functions (cu and a capital letter) */
    const char *why;  /* the rule that was broken, where it was refused; else NULL */
    int device;       /* current at the start */
    const void *stream;
    const standin_kernel *kernel; /* of launches and attributes; else NULL */
    unsigned grid[3], block[3], cluster[3];
    size_t bytes;           /* dynamic shared memory of a launch or an attribute, or the size of memory */
    bool overlaps;          /* programmatic stream serialization */
    void *const *arguments; /* of a launch: valid during the call alone */
    unsigned char
        *parameters; /* copies of the arguments, one after the other, where their sizes are known; else NULL */
    size_t parameter_bytes;
    const void *memory, *source; /* of allocations, copies and tensor maps */
    int value;                   /* the device of cudaSetDevice, an attribute */
    uint64_t digest;             /* of a tensor map's arguments without its address */
} standin_call;

/* Forgets all calls. Recording is on at the start. */
void standin_forget_calls(void);
void standin_record(bool on);

size_t standin_call_count(void);
const standin_call *standin_call_at(size_t index);
bool standin_is_launch(const standin_call *call);

/* Prints one call as a line, as the trace has it. */
void standin_print_call(FILE *file, const standin_call *call);

/* Has the nth call from now on fail once (1: the next) with a runtime's error, or the driver's functions with the
 * driver's; 0: none. Only calls that can fail are counted. Returns how many had been counted since the last. */
int64_t standin_fail(int64_t nth, cudaError_t error, int driver_error);

/* The name of the function that failed so; NULL where none has yet. */
const char *standin_failed(void);
/* Whether that was cudaSetDevice of this device. */
bool standin_failed_setting(int device);

/* In quick mode hot functions do nothing but succeed: nothing is recorded or checked, no call fails. */
void standin_quick(bool on);

/* Has every call leave this byte on the stack below its caller, as far as PAINTED bytes, so that what a caller later
 * leaves unwritten there has it; -1, at the start: nothing. */
void standin_paint(int byte);

/* Does so at once. */
void standin_paint_now(void);

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Device memory that was not freed, in bytes and in pieces. */
size_t standin_live_bytes(void);
int standin_live_pieces(void);

/* A digest (FNV-1a, 64 bits), that goes on from seed; STANDIN_DIGEST_SEED starts one. */
#define STANDIN_DIGEST_SEED UINT64_C(0xcbf29ce484222325)
uint64_t standin_digest(const void *bytes, size_t count, uint64_t seed);

#endif
