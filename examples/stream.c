/*
 * stream: decodes a stream of frames to sound, chunk by chunk, as decoders of speech and music do.
 *
 *     stream OUTPUT.wav [auto|cpu|cuda] [SEED]
 *
 * The stream is four seconds of 25 frames each, which say how loud each of eight notes is. Three transposed convolutions
 * make 24,000 samples a second of them, as the decoder of a codec does with features that it has learned:
 *
 *     notes to notes, stride 2      each note by itself (depthwise), interpolated linearly between frames
 *     notes to partials, stride 2   a note is a sum of three harmonics, of a bank of sixteen
 *     partials to sound, stride 240 each partial is a sine under a window of 480 samples; windows overlap by half
 *
 * All are causal: a chunk of n frames gives 960 * n samples at once, and what its last frames add to later samples stays in
 * the carry of each layer. The chunks have lengths drawn by lot from 1 to 9 frames, by SEED, and all are computed by one plan
 * for each layer. The program decodes the same frames in one piece too: where the plans promise that no bit depends on chunks
 * (chunk_invariant=yes), the samples have to be the same. By `auto` it does so on the CPU, and on a GPU if there is one.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tconv/tconv.h>
#ifdef EXAMPLE_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

enum {
    RATE = 24000, /* samples a second */
    FRAMES = 100, /* four seconds */
    HOP = 960,    /* samples of a frame: the product of the strides */
    SAMPLES = FRAMES * HOP,
    LONGEST = 9, /* frames of a chunk */
    NOTES = 8,
    PARTIALS = 16, /* sines of 100, 200, ... 1600 Hz: each has whole periods in 240 samples */
    LAYERS = 3
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "stream: error: %s: %s\n", what, why);
    return 2;
}

/* ------------------------------------------------------------------------------------------- memory of either backend */

static void *allocate(size_t bytes, bool on_device)
{
    void *memory = NULL;
#ifdef EXAMPLE_HAVE_CUDA
    if (on_device)
        return cudaMalloc(&memory, bytes + 1) == cudaSuccess ? memory : NULL;
#endif
    (void)on_device;
    memory = malloc(bytes + 1);
    return memory;
}

static void release(void *memory, bool on_device)
{
#ifdef EXAMPLE_HAVE_CUDA
    if (on_device) {
        cudaFree(memory);
        return;
    }
#endif
    (void)on_device;
    free(memory);
}

/* Copies rows of `count` numbers, which lie so many numbers apart in each memory, and waits for the device. */
static bool copy_rows(float *to, size_t to_pitch, const float *from, size_t from_pitch, size_t rows, size_t count,
                      bool with_device)
{
#ifdef EXAMPLE_HAVE_CUDA
    if (with_device)
        return cudaMemcpy2D(to, to_pitch * sizeof *to, from, from_pitch * sizeof *from, count * sizeof *to, rows,
                            cudaMemcpyDefault) == cudaSuccess;
#endif
    (void)with_device;
    for (size_t row = 0; row < rows; row++)
        memcpy(to + row * to_pitch, from + row * from_pitch, count * sizeof *to);
    return true;
}

/* ------------------------------------------------------------------------------------------------------- the decoder */

/* A layer with all that one stream of it needs. What the pointers point to is its own. */
typedef struct layer {
    int64_t in, out, kernel, stride, groups;
    float *weights, *carry, *dst; /* where the plan computes; dst: of the longest chunk */
    void *workspace;
    size_t workspace_size, carry_count;
    tconv_plan *plan;
} layer;

typedef struct decoder {
    layer layers[LAYERS];
    float *src; /* frames of a chunk, [NOTES][length] */
    int64_t longest;
    bool on_device, invariant; /* invariant: each plan promises bits that do not depend on chunks */
} decoder;

static const double pi = 3.14159265358979323846;

/* Writes the weights of a layer, [in][out / groups][kernel]; returns how many there are. */
static size_t make_weights(int index, float *weights)
{
    static const float between[4] = {0.25F, 0.75F, 0.75F, 0.25F}; /* linear interpolation by 2 */
    static const int harmonics[NOTES] = {2, 3, 4, 5, 6, 8, 10, 12};
    size_t count = 0;
    for (int note = 0; index == 0 && note < NOTES; note++)
        for (int tap = 0; tap < 4; tap++)
            weights[count++] = between[tap];
    for (int note = 0; index == 1 && note < NOTES; note++)
        for (int partial = 1; partial <= PARTIALS; partial++)
            for (int tap = 0; tap < 4; tap++) {
                const int times = partial % harmonics[note] == 0 ? partial / harmonics[note] : 0;
                weights[count++] = times >= 1 && times <= 3 ? between[tap] / (float)(times * times) : 0;
            }
    for (int partial = 1; index == 2 && partial <= PARTIALS; partial++)
        for (int tap = 0; tap < 480; tap++)
            weights[count++] = (float)((0.5 - 0.5 * cos(pi * tap / 240)) * sin(2 * pi * partial * tap / 240));
    return count;
}

/* Plans a layer for chunks of up to `length` inputs, and allocates what its stream needs. */
static int make_layer(layer *made, int index, int64_t length, bool on_device, bool *invariant)
{
    static float host[PARTIALS * 480];
    const size_t count = make_weights(index, host);
    tconv_issue issue;
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.in_channels = made->in;
    desc.out_channels = made->out;
    desc.groups = made->groups;
    desc.in_h = desc.kernel_h = 1;
    desc.in_w = length;
    desc.kernel_w = made->kernel;
    desc.stride_w = made->stride;
    desc.stream_axis = 2; /* columns */
    tconv_options options;
    tconv_options_init(&options);
    options.backend = on_device ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;
    options.location = on_device ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    int64_t shape[4];
    char text[1024];
    if (tconv_carry_shape(&desc, shape, &issue) != TCONV_SUCCESS ||
        tconv_plan_create(&desc, &options, &made->plan, &issue) != TCONV_SUCCESS ||
        tconv_plan_workspace_size(made->plan, &made->workspace_size) != TCONV_SUCCESS ||
        tconv_plan_describe(made->plan, text, sizeof text, NULL) != TCONV_SUCCESS)
        return fail("layer", issue.message);
    *invariant = *invariant && strstr(text, "chunk_invariant=yes") != NULL;
    made->carry_count = (size_t)(shape[1] * shape[2] * shape[3]);
    made->weights = allocate(count * sizeof(float), on_device);
    made->carry = allocate(made->carry_count * sizeof(float), on_device);
    made->dst = allocate((size_t)(made->out * length * made->stride) * sizeof(float), on_device);
    made->workspace = allocate(made->workspace_size, on_device);
    if (made->weights == NULL || made->carry == NULL || made->dst == NULL || made->workspace == NULL)
        return fail("layer", "out of memory");
    return copy_rows(made->weights, count, host, count, 1, count, on_device) ? 0 : fail("layer", "cudaMemcpy2D");
}

static int make_decoder(decoder *made, int64_t longest, bool on_device)
{
    *made = (decoder){.layers = {{.in = NOTES, .out = NOTES, .kernel = 4, .stride = 2, .groups = NOTES},
                                 {.in = NOTES, .out = PARTIALS, .kernel = 4, .stride = 2, .groups = 1},
                                 {.in = PARTIALS, .out = 1, .kernel = 480, .stride = 240, .groups = 1}},
                      .longest = longest,
                      .on_device = on_device,
                      .invariant = true};
    made->src = allocate((size_t)(NOTES * longest) * sizeof(float), on_device);
    if (made->src == NULL)
        return fail("decoder", "out of memory");
    int64_t length = longest;
    for (int i = 0; i < LAYERS; i++) {
        const int code = make_layer(&made->layers[i], i, length, on_device, &made->invariant);
        if (code != 0)
            return code;
        length *= made->layers[i].stride;
    }
    return 0;
}

static void destroy_decoder(decoder *given)
{
    for (int i = 0; i < LAYERS; i++) {
        layer *each = &given->layers[i];
        tconv_plan_destroy(each->plan);
        release(each->weights, given->on_device);
        release(each->carry, given->on_device);
        release(each->dst, given->on_device);
        release(each->workspace, given->on_device);
    }
    release(given->src, given->on_device);
}

/* Decodes a chunk of frames that lie in the decoder's src: the next samples are in the last layer's dst. `begins` says that
 * the chunk is a stream's first, so that nothing is read from the carries. */
static int decode_chunk(const decoder *given, int64_t length, bool begins, const uint8_t *begin)
{
    const tconv_location location = given->on_device ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    tconv_tensor src = {given->src, TCONV_F32, location};
    for (int i = 0; i < LAYERS; i++) {
        const layer *each = &given->layers[i];
        const tconv_tensor weights = {each->weights, TCONV_F32, location}, dst = {each->dst, TCONV_F32, location};
        const tconv_tensor carry = {each->carry, TCONV_F32, location};
        tconv_step step;
        tconv_step_init(&step);
        step.src = &src;
        step.weights = &weights;
        step.dst = &dst;
        step.carry = &carry;
        step.length = length;
        step.reset = begins ? begin : NULL;
        step.workspace = each->workspace;
        step.workspace_size = each->workspace_size;
        if (tconv_plan_step(each->plan, &step) != TCONV_SUCCESS) {
            tconv_issue issue;
            tconv_last_issue(&issue);
            return fail("step", issue.message);
        }
        src = dst;
        length *= each->stride;
    }
    return 0;
}

/* Decodes all frames, [NOTES][FRAMES], to samples in chunks of random lengths up to the decoder's longest, or in one piece
 * where all fit. Sets the number of chunks. */
static int decode(const decoder *given, const float *frames, float *samples, unsigned seed, int *chunks)
{
    static const uint8_t one = 1;
    uint8_t *begin = allocate(1, given->on_device);
    int code = begin == NULL ? fail("decoder", "out of memory") : 0;
#ifdef EXAMPLE_HAVE_CUDA
    if (code == 0 && given->on_device && cudaMemcpy(begin, &one, 1, cudaMemcpyDefault) != cudaSuccess)
        code = fail("decoder", "cudaMemcpy");
#endif
    if (code == 0 && !given->on_device)
        *begin = one;
    *chunks = 0;
    for (int64_t frame = 0, length; code == 0 && frame < FRAMES; frame += length, ++*chunks) {
        seed = seed * 1664525U + 1013904223U;
        length = given->longest >= FRAMES ? FRAMES : 1 + (int64_t)(seed >> 16) % given->longest;
        length = length < FRAMES - frame ? length : FRAMES - frame;
        const size_t count = (size_t)length;
        if (!copy_rows(given->src, count, frames + frame, FRAMES, NOTES, count, given->on_device))
            code = fail("decoder", "cudaMemcpy2D");
        if (code == 0)
            code = decode_chunk(given, length, frame == 0, begin);
        if (code == 0 && !copy_rows(samples + frame * HOP, count * HOP, given->layers[LAYERS - 1].dst, count * HOP, 1,
                                    count * HOP, given->on_device))
            code = fail("decoder", "cudaMemcpy2D");
    }
    release(begin, given->on_device);
    return code;
}

/* ------------------------------------------------------------------------------------------------------- the program */

/* How loud each note is: a broken chord up and down, each tone fading until its next turn. */
static void compose(float *frames)
{
    static const int melody[20] = {0, 2, 3, 4, 5, 4, 3, 2, 1, 3, 4, 6, 7, 6, 4, 3, 0, 3, 4, 5};
    for (int note = 0; note < NOTES; note++) {
        float loud = 0;
        for (int frame = 0; frame < FRAMES; frame++) {
            loud = frame % 5 == 0 && melody[frame / 5] == note ? 0.35F : loud * 0.86F;
            frames[note * FRAMES + frame] = loud;
        }
    }
}

static void put_number(unsigned char *to, uint32_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(number >> 8 * i);
}

static void put_text(unsigned char *to, const char *text)
{
    for (; *text != '\0'; text++)
        *to++ = (unsigned char)*text;
}

/* Writes samples between -1 and 1 as a WAV file of 16 bits, one channel. */
static int write_sound(const char *path, const float *samples)
{
    static unsigned char bytes[44 + 2 * SAMPLES];
    put_text(bytes, "RIFF");
    put_number(bytes + 4, 36 + 2 * SAMPLES, 4);
    put_text(bytes + 8, "WAVEfmt ");
    put_number(bytes + 16, 16, 4); /* bytes of the format */
    put_number(bytes + 20, 1, 2);  /* whole numbers */
    put_number(bytes + 22, 1, 2);  /* channels */
    put_number(bytes + 24, RATE, 4);
    put_number(bytes + 28, 2 * RATE, 4); /* bytes a second */
    put_number(bytes + 32, 2, 2);        /* bytes of a sample */
    put_number(bytes + 34, 16, 2);       /* bits */
    put_text(bytes + 36, "data");
    put_number(bytes + 40, 2 * SAMPLES, 4);
    for (int i = 0; i < SAMPLES; i++) {
        const float value = samples[i] < -1 ? -1 : samples[i] > 1 ? 1 : samples[i];
        put_number(bytes + 44 + 2 * i, (uint32_t)(int32_t)lrintf(32767 * value), 2);
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, sizeof bytes, file) != sizeof bytes) {
        if (file != NULL)
            fclose(file);
        return fail(path, "cannot be written");
    }
    return fclose(file) == 0 ? 0 : fail(path, "cannot be written");
}

/* Decodes in chunks and in one piece on a backend, and compares. */
static int run(const float *frames, float *samples, float *whole, unsigned seed, bool on_device)
{
    decoder chunked, single;
    int chunks = 0, one = 0;
    memset(&single, 0, sizeof single);
    int code = make_decoder(&chunked, LONGEST, on_device);
    if (code == 0)
        code = make_decoder(&single, FRAMES, on_device);
    if (code == 0)
        code = decode(&chunked, frames, samples, seed, &chunks);
    if (code == 0)
        code = decode(&single, frames, whole, seed, &one);
    if (code == 0) {
        float difference = 0;
        for (int i = 0; i < SAMPLES; i++)
            difference = fmaxf(difference, fabsf(samples[i] - whole[i]));
        const bool same = memcmp(samples, whole, SAMPLES * sizeof *samples) == 0;
        const bool promised = chunked.invariant && single.invariant;
        printf("%s: %d samples in %d chunks,", on_device ? "cuda" : "cpu", SAMPLES, chunks);
        for (int i = 0; i < LAYERS; i++)
            printf(" %s", tconv_plan_implementation(chunked.layers[i].plan));
        printf(": %s in one piece, %g at most apart%s\n", same ? "the same bits as" : "other bits than",
               (double)difference, promised ? "" : ", no promise of bits");
        if ((promised && !same) || difference > 1e-5F)
            code = fail("decoder", "the chunks do not give what one piece gives");
    }
    destroy_decoder(&single);
    destroy_decoder(&chunked);
    return code;
}

int main(int argc, char **argv)
{
    static float frames[NOTES * FRAMES], samples[SAMPLES], whole[SAMPLES], of_cpu[SAMPLES];
    const char *backend = argc > 2 ? argv[2] : "auto";
    const bool automatic = strcmp(backend, "auto") == 0, on_cuda = strcmp(backend, "cuda") == 0;
    tconv_issue issue;
    if (argc < 2 || argc > 4 || (!automatic && !on_cuda && strcmp(backend, "cpu") != 0))
        return fail("arguments", "expected OUTPUT.wav [auto|cpu|cuda] [SEED]");
    const unsigned seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
#ifdef EXAMPLE_HAVE_CUDA
    const bool has_cuda = tconv_backend_available(TCONV_BACKEND_CUDA, &issue) == TCONV_SUCCESS;
#else
    const bool has_cuda = false;
    snprintf(issue.message, sizeof issue.message, "the example was built without CUDA");
#endif
    if (on_cuda && !has_cuda)
        return fail("skipped: no CUDA device", issue.message);
    compose(frames);
    int code = on_cuda ? 0 : run(frames, of_cpu, whole, seed, false);
    memcpy(samples, of_cpu, sizeof samples);
    if (code == 0 && has_cuda && (on_cuda || automatic))
        code = run(frames, samples, whole, seed, true);
    for (int i = 0; code == 0 && automatic && i < SAMPLES; i++)
        if (fabsf(samples[i] - of_cpu[i]) > 1e-4F)
            code = fail("cuda", "gives other samples than the CPU");
    return code == 0 ? write_sound(argv[1], samples) : code;
}
