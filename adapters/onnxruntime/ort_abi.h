/*
 * The part of ONNX Runtime's binary interface that an execution provider needs: functions of the tables OrtApi and OrtEpApi
 * by their place, and the structs that a provider fills in. ONNX Runtime only ever appends to these tables and structs, so
 * that one shared object serves every version from 1.24 on, and no ONNX Runtime is needed to compile it.
 *
 * The facts are those of ONNX Runtime's public headers onnxruntime_c_api.h and onnxruntime_ep_c_api.h (version 24 of the
 * interface), in our own words. tconv_ort_load tries what can be tried before anything is registered.
 *     A function that returns an OrtStatus returns NULL on success; the caller releases a status that is not NULL. const
 * outputs belong to ONNX Runtime.
 */
#ifndef TCONV_ORT_ABI_H
#define TCONV_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of the interface that is declared here: ONNX Runtime 1.24 has it, and every later one. */
#define ORT_ABI_VERSION 24

typedef struct OrtAllocator OrtAllocator;
typedef struct OrtDataTransferImpl OrtDataTransferImpl;
typedef struct OrtDataType OrtDataType;
typedef struct OrtEp OrtEp;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtEpGraphSupportInfo OrtEpGraphSupportInfo;
typedef struct OrtGraph OrtGraph;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtKernelDef OrtKernelDef;
typedef struct OrtKernelDefBuilder OrtKernelDefBuilder;
typedef struct OrtKernelImpl OrtKernelImpl;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelRegistry OrtKernelRegistry;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtLogger OrtLogger;
typedef struct OrtNode OrtNode;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtSharedPrePackedWeightCache OrtSharedPrePackedWeightCache;
typedef struct OrtStatus OrtStatus;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtValue OrtValue;
typedef struct OrtValueInfo OrtValueInfo;

/* What an application hands to a plug-in: GetApi answers the table of functions, NULL where it has no such version. */
typedef struct OrtApiBase {
    const void *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };                              /* codes of a status */
enum { ORT_FLOAT = 1, ORT_FLOAT16 = 10, ORT_DOUBLE = 11, ORT_BFLOAT16 = 16 }; /* types of elements */
enum { ORT_ATTRIBUTE_INT = 1, ORT_ATTRIBUTE_INTS = 2, ORT_ATTRIBUTE_STRING = 5 };
enum { ORT_HARDWARE_CPU = 0 };

/* Makes a kernel of a node; state is what the kernel was registered with. */
typedef OrtStatus *ort_create_kernel(void *state, const OrtKernelInfo *info, OrtKernelImpl **kernel);

/*
 * X(place, result, name, parameters) for each function of OrtApi that is called. Texts and arrays of attributes: *size is
 * the capacity, and becomes what is needed, a text's closing '\0' included.
 */
#define ORT_API_FUNCTIONS(X)                                                                                           \
    X(0, OrtStatus *, CreateStatus, (int code, const char *message))                                                   \
    X(1, int, GetErrorCode, (const OrtStatus *))                                                                       \
    X(2, const char *, GetErrorMessage, (const OrtStatus *))                                                           \
    X(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **data))                                                \
    X(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **))            \
    X(60, OrtStatus *, GetTensorElementType, (const OrtTensorTypeAndShapeInfo *, int *type))                           \
    X(61, OrtStatus *, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo *, size_t *count))                         \
    X(62, OrtStatus *, GetDimensions, (const OrtTensorTypeAndShapeInfo *, int64_t *dims, size_t count))                \
    X(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *, OrtTensorTypeAndShapeInfo **))                        \
    X(86, OrtStatus *, KernelInfoGetAttribute_int64, (const OrtKernelInfo *, const char *name, int64_t *value))        \
    X(87, OrtStatus *, KernelInfoGetAttribute_string, (const OrtKernelInfo *, const char *name, char *, size_t *size)) \
    X(88, OrtStatus *, KernelContext_GetInputCount, (const OrtKernelContext *, size_t *count))                         \
    X(90, OrtStatus *, KernelContext_GetInput, (const OrtKernelContext *, size_t index, const OrtValue **))            \
    X(91, OrtStatus *, KernelContext_GetOutput,                                                                        \
      (OrtKernelContext *, size_t index, const int64_t *dims, size_t count, OrtValue **))                              \
    X(93, void, ReleaseStatus, (OrtStatus *))                                                                          \
    X(98, void, ReleaseTypeInfo, (OrtTypeInfo *))                                                                      \
    X(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo *))                                          \
    X(163, OrtStatus *, KernelInfoGetAttributeArray_int64,                                                             \
      (const OrtKernelInfo *, const char *name, int64_t *values, size_t *size))                                        \
    X(234, OrtStatus *, KernelInfo_GetInputTypeInfo, (const OrtKernelInfo *, size_t index, OrtTypeInfo **))            \
    X(237, OrtStatus *, HasSessionConfigEntry, (const OrtSessionOptions *, const char *key, int *there))               \
    X(238, OrtStatus *, GetSessionConfigEntry, (const OrtSessionOptions *, const char *key, char *, size_t *size))     \
    X(272, OrtStatus *, ReadOpAttr, (const OrtOpAttr *, int type, void *data, size_t size, size_t *needed))            \
    X(274, OrtStatus *, KernelContext_ParallelFor,                                                                     \
      (const OrtKernelContext *, void (*function)(void *, size_t), size_t total, size_t batches, void *argument))      \
    X(290, OrtStatus *, GetValueInfoTypeInfo, (const OrtValueInfo *, const OrtTypeInfo **))                            \
    X(295, void, CreateKeyValuePairs, (OrtKeyValuePairs **))                                                           \
    X(296, void, AddKeyValuePair, (OrtKeyValuePairs *, const char *key, const char *value))                            \
    X(297, const char *, GetKeyValue, (const OrtKeyValuePairs *, const char *key))                                     \
    X(300, void, ReleaseKeyValuePairs, (OrtKeyValuePairs *))                                                           \
    X(307, int, HardwareDevice_Type, (const OrtHardwareDevice *))                                                      \
    X(317, const void *, GetEpApi, (void))                                                                             \
    X(344, OrtStatus *, Graph_GetNumNodes, (const OrtGraph *, size_t *count))                                          \
    X(345, OrtStatus *, Graph_GetNodes, (const OrtGraph *, const OrtNode **nodes, size_t count))                       \
    X(349, OrtStatus *, Node_GetName, (const OrtNode *, const char **name))                                            \
    X(350, OrtStatus *, Node_GetOperatorType, (const OrtNode *, const char **type))                                    \
    X(351, OrtStatus *, Node_GetDomain, (const OrtNode *, const char **domain))                                        \
    X(353, OrtStatus *, Node_GetNumInputs, (const OrtNode *, size_t *count))                                           \
    X(354, OrtStatus *, Node_GetInputs, (const OrtNode *, const OrtValueInfo **inputs, size_t count))                  \
    X(361, OrtStatus *, Node_GetAttributeByName, (const OrtNode *, const char *name, const OrtOpAttr **))

/* The same for OrtEpApi, which GetEpApi answers. */
#define ORT_EP_API_FUNCTIONS(X)                                                                                        \
    X(0, OrtStatus *, CreateEpDevice,                                                                                  \
      (OrtEpFactory *, const OrtHardwareDevice *, const OrtKeyValuePairs *metadata, const OrtKeyValuePairs *options,   \
       OrtEpDevice **))                                                                                                \
    X(1, void, ReleaseEpDevice, (OrtEpDevice *))                                                                       \
    X(3, OrtStatus *, EpGraphSupportInfo_AddSingleNode, (OrtEpGraphSupportInfo *, const OrtNode *))                    \
    X(18, OrtStatus *, CreateKernelRegistry, (OrtKernelRegistry **))                                                   \
    X(19, void, ReleaseKernelRegistry, (OrtKernelRegistry *))                                                          \
    X(20, OrtStatus *, KernelRegistry_AddKernel,                                                                       \
      (OrtKernelRegistry *, const OrtKernelDef *, ort_create_kernel *, void *state))                                   \
    X(21, OrtStatus *, CreateKernelDefBuilder, (OrtKernelDefBuilder **))                                               \
    X(22, void, ReleaseKernelDefBuilder, (OrtKernelDefBuilder *))                                                      \
    X(23, OrtStatus *, KernelDefBuilder_SetOperatorType, (OrtKernelDefBuilder *, const char *type))                    \
    X(24, OrtStatus *, KernelDefBuilder_SetDomain, (OrtKernelDefBuilder *, const char *domain))                        \
    X(25, OrtStatus *, KernelDefBuilder_SetSinceVersion, (OrtKernelDefBuilder *, int first, int last))                 \
    X(26, OrtStatus *, KernelDefBuilder_SetExecutionProvider, (OrtKernelDefBuilder *, const char *provider))           \
    X(29, OrtStatus *, KernelDefBuilder_AddTypeConstraint,                                                             \
      (OrtKernelDefBuilder *, const char *name, const OrtDataType *const *types, size_t count))                        \
    X(32, OrtStatus *, KernelDefBuilder_Build, (OrtKernelDefBuilder *, OrtKernelDef **))                               \
    X(33, void, ReleaseKernelDef, (OrtKernelDef *))                                                                    \
    X(34, const char *, KernelDef_GetOperatorType, (const OrtKernelDef *))                                             \
    X(35, const char *, KernelDef_GetDomain, (const OrtKernelDef *))                                                   \
    X(36, OrtStatus *, KernelDef_GetSinceVersion, (const OrtKernelDef *, int *first, int *last))                       \
    X(37, const char *, KernelDef_GetExecutionProvider, (const OrtKernelDef *))                                        \
    X(40, OrtStatus *, GetTensorDataType, (int type, const OrtDataType **))                                            \
    X(41, OrtStatus *, EpGraphSupportInfo_LookUpKernel,                                                                \
      (OrtEpGraphSupportInfo *, const OrtNode *, const OrtKernelDef **))

/* Both tables' functions by name. */
struct ort {
#define ORT_MEMBER(place, result, name, parameters) result(*name) parameters;
    ORT_API_FUNCTIONS(ORT_MEMBER)
    ORT_EP_API_FUNCTIONS(ORT_MEMBER)
#undef ORT_MEMBER
};

/* Makes providers. Members without a comment are not needed and stay NULL. */
struct OrtEpFactory {
    uint32_t version; /* ORT_ABI_VERSION: ONNX Runtime reads no member that is younger */
    const char *(*GetName)(const OrtEpFactory *);
    const char *(*GetVendor)(const OrtEpFactory *);
    /* Makes a device of each hardware device that the provider can use, for ONNX Runtime to release. */
    OrtStatus *(*GetSupportedDevices)(OrtEpFactory *, const OrtHardwareDevice *const *devices, size_t count,
                                      OrtEpDevice **made, size_t most, size_t *made_count);
    /* Makes the provider of a session. */
    OrtStatus *(*CreateEp)(OrtEpFactory *, const OrtHardwareDevice *const *devices,
                           const OrtKeyValuePairs *const *metadata, size_t count, const OrtSessionOptions *,
                           const OrtLogger *, OrtEp **);
    void (*ReleaseEp)(OrtEpFactory *, OrtEp *);
    uint32_t (*GetVendorId)(const OrtEpFactory *);   /* of a PCI vendor; 0 for none */
    const char *(*GetVersion)(const OrtEpFactory *); /* three numbers */
    void (*ValidateCompiledModelCompatibilityInfo)(void);
    void (*CreateAllocator)(void);
    void (*ReleaseAllocator)(void);
    /* What copies tensors to and from the provider's devices; NULL where nothing has to. */
    OrtStatus *(*CreateDataTransfer)(OrtEpFactory *, OrtDataTransferImpl **);
    bool (*IsStreamAware)(const OrtEpFactory *); /* whether the provider has streams */
    void (*CreateSyncStreamForDevice)(void);
    void (*GetHardwareDeviceIncompatibilityDetails)(void);
    void (*CreateExternalResourceImporterForDevice)(void);
    void (*GetNumCustomOpDomains)(void);
    void (*GetCustomOpDomains)(void);
};

/* The provider of a session. */
struct OrtEp {
    uint32_t version;
    const char *(*GetName)(const OrtEp *);
    /* Names the nodes of a graph that the provider takes. */
    OrtStatus *(*GetCapability)(OrtEp *, const OrtGraph *, OrtEpGraphSupportInfo *);
    void (*Compile)(void);
    void (*ReleaseNodeComputeInfos)(void);
    void (*GetPreferredDataLayout)(void);
    void (*ShouldConvertDataLayoutForOp)(void);
    void (*SetDynamicOptions)(void);
    void (*OnRunStart)(void);
    void (*OnRunEnd)(void);
    void (*CreateAllocator)(void);
    void (*CreateSyncStreamForDevice)(void);
    void (*GetCompiledModelCompatibilityInfo)(void);
    OrtStatus *(*GetKernelRegistry)(OrtEp *, const OrtKernelRegistry **); /* which the provider keeps */
    void (*IsConcurrentRunSupported)(void);                               /* NULL: it is */
};

/* The kernel of a node. */
struct OrtKernelImpl {
    uint32_t version;
    uint32_t flags; /* 0 */
    OrtStatus *(*Compute)(OrtKernelImpl *, OrtKernelContext *);
    void (*Release)(OrtKernelImpl *);
    /* Shows a constant input, once. With *is_packed = true, ONNX Runtime may free the input and never shows it again. */
    OrtStatus *(*PrePackWeight)(OrtKernelImpl *, const OrtValue *, int input, OrtAllocator *,
                                OrtSharedPrePackedWeightCache *, bool *is_packed);
    void (*SetSharedPrePackedWeight)(void);
};

_Static_assert(sizeof(OrtEpFactory) == 18 * sizeof(void *), "a version and 17 functions");
_Static_assert(sizeof(OrtEp) == 15 * sizeof(void *), "a version and 14 functions");
_Static_assert(sizeof(OrtKernelImpl) == 8 + 4 * sizeof(void *), "a version, flags and 4 functions");

/*
 * Reads the tables of an ONNX Runtime into *ort and tries those functions that can be tried without a session. Returns NULL,
 * or a status that says what does not fit; NULL and *loaded = false where not even a status can be made.
 */
OrtStatus *tconv_ort_load(const OrtApiBase *base, struct ort *ort, bool *loaded);

#endif
