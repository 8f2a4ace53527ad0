/*
 * The execution provider: what its files share. A factory (factory.c) makes a provider for each session; the provider
 * (provider.c) names the nodes that it takes and registers kernels; a kernel (kernel.c) runs one node by plans that are kept by
 * shape (plans.h).
 */
#ifndef TCONV_ORT_PROVIDER_H
#define TCONV_ORT_PROVIDER_H

#include <pthread.h>

#include "layer.h"
#include "ort_abi.h"

#define TCONV_ORT_PROVIDER_NAME "TconvExecutionProvider"

/* Memory that kernels compute in, kept from run to run: as many blocks as there were runs at once. */
struct tconv_ort_workspace {
    struct tconv_ort_workspace *next;
    size_t size;
    max_align_t data[];
};

/* The provider of a session. */
struct tconv_ort_provider {
    OrtEp base; /* first: what ONNX Runtime knows */
    const struct ort *ort;
    OrtKernelRegistry *registry;
    int32_t threads; /* as tconv_options has it */
    bool takes_all;  /* also nodes at which ONNX Runtime is thought faster */
    bool verbose;
    pthread_mutex_t lock; /* of workspaces */
    struct tconv_ort_workspace *workspaces;
};

/* Makes a provider, for tconv_ort_provider_destroy; *made is NULL where there is none. */
OrtStatus *tconv_ort_provider_create(const struct ort *ort, const OrtSessionOptions *options,
                                     struct tconv_ort_provider **made);

void tconv_ort_provider_destroy(struct tconv_ort_provider *provider);

/* A workspace of at least size bytes, to be given back; NULL where there is no memory. */
struct tconv_ort_workspace *tconv_ort_workspace_take(struct tconv_ort_provider *provider, size_t size);

void tconv_ort_workspace_give(struct tconv_ort_provider *provider, struct tconv_ort_workspace *workspace);

/* Reads the type and what is known of the shape; false where it is no tensor of a type that tconv has. */
OrtStatus *tconv_ort_read_type(const struct ort *ort, const OrtTypeInfo *info, bool *is_known, tconv_dtype *dtype,
                               struct tconv_ort_shape *shape);

/* Makes the kernel of a node; state is the provider. */
OrtStatus *tconv_ort_create_kernel(void *state, const OrtKernelInfo *info, OrtKernelImpl **made);

#endif
