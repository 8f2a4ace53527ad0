/* What the files of the stand-in share. */
#ifndef TCONV_TESTS_STANDIN_STATE_H
#define TCONV_TESTS_STANDIN_STATE_H

#include "standin.h"

#define STANDIN_PLAIN_SHARED   49152 /* bytes of shared memory that a block may have without asking */
#define STANDIN_MAX_THREADS    1024  /* of a block */
#define STANDIN_MAX_PARAMETERS 16    /* of a kernel that the table describes */

struct standin_kernel {
    const void *host; /* the address of the host's stub, by which launches name it */
    const char *name;
    const struct standin_binary *binary;
    uint64_t code; /* digest; 0: the table does not have the kernel, and the figures below are the most there may be */
    int registers; /* of a thread */
    int max_threads;   /* of a block */
    int static_shared; /* bytes */
    int cluster;       /* blocks of the cluster that it was compiled for; 0: none */
    int parameters;    /* number of sizes */
    size_t sizes[STANDIN_MAX_PARAMETERS];
    int allowed_shared[STANDIN_MAX_DEVICES]; /* dynamic bytes that cudaFuncSetAttribute allowed; 0: none */
};

extern bool standin_is_quick;

/* The device that is current for the calling thread, and its description. */
int standin_current(void);
const standin_device *standin_describe(int device);

/* The version of CUDA that the driver is for; 0 where there is no driver. */
int standin_driver_version(void);

/* Starts the record of a call. Anything but cudaSuccess is the error that the call has to fail with. */
cudaError_t standin_begin(standin_call *call, const char *name);

/* Ends it: records the call, and keeps the error as the thread's last. Returns error. */
cudaError_t standin_end(standin_call *call, cudaError_t error);

/* The same for functions of the driver, of which the runtime's last error knows nothing. */
int standin_begin_driver(standin_call *call, const char *name);
int standin_end_driver(standin_call *call, int result);

/* Notes the rule that a call breaks, and returns error. */
cudaError_t standin_refuse(standin_call *call, cudaError_t error, const char *why);

/* The kernel of a stub's address; NULL where there is none. */
standin_kernel *standin_find_kernel(const void *host);

/* Checks a launch and copies its parameters. */
cudaError_t standin_check_launch(standin_call *call, const void *host);

/* A function of the driver by its name; NULL where there is none. */
void *standin_driver_function(const char *name);

#endif
