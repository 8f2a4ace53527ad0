/*
 * Tests for every implementation by its name, in strict math and in TF32, what test_stream.c tests for the default one:
 * it can be captured into a graph, runs on several streams at once, waits for nothing, gives the same bits each time,
 * and leaves an error that the caller has not yet asked for.
 */
#include <criterion/criterion.h>

#include "support/hold.h"
#include "support/placed.h"

static struct way ways[MAX_WAYS];
static size_t taken[MAX_WAYS], way_count;

/* Calls check for every layer and way that takes it. */
static void for_every_way(void (*check)(const struct placed *placed))
{
    skip_without_cuda();
    way_count = list_ways(TCONV_BACKEND_CUDA, ways);
    for (size_t i = 0; i < PLACED_LAYERS; i++)
        for (int form = 0; form < PLACED_FORMS; form++) {
            harness_case test = make_placed_case(i, form);
            for (size_t w = 0; w < way_count; w++) {
                struct placed placed;
                if (!place_way(&placed, &test, &ways[w], 0))
                    continue;
                check(&placed);
                placed_release(&placed);
                taken[w]++;
            }
            harness_case_destroy(&test);
        }
    say_taken(ways, taken, way_count);
}

static void check_capture(const struct placed *placed)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    expect_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int packed = 0; packed < 2; packed++) {
        expect_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        placed_execute(placed, packed != 0, stream);
        expect_cuda(cudaStreamEndCapture(stream, &graph));
        expect_cuda(cudaGraphInstantiate(&executable, graph, 0));
        for (int launch = 0; launch < 3; launch++) {
            placed_clear(placed, stream);
            expect_cuda(cudaGraphLaunch(executable, stream));
            placed_expect_same_bits(placed, stream, packed != 0 ? "graph, packed weights" : "graph");
        }
        expect_cuda(cudaGraphExecDestroy(executable));
        expect_cuda(cudaGraphDestroy(graph));
    }
    expect_cuda(cudaStreamDestroy(stream));
}

Test(stream_ways_cuda, every_way_is_captured_into_a_graph)
{
    for_every_way(check_capture);
}

static void check_again(const struct placed *placed)
{
    for (int run = 0; run < 20; run++) {
        placed_clear(placed, NULL);
        placed_execute(placed, run % 2 != 0, NULL);
        placed_expect_same_bits(placed, NULL, run % 2 != 0 ? "again, packed weights" : "again");
    }
}

Test(stream_ways_cuda, every_way_gives_the_same_bits_again)
{
    for_every_way(check_again);
}

static void check_last_error(const struct placed *placed)
{
    for (int packed = 0; packed < 2; packed++) {
        cr_assert_eq(cudaSetDevice(4711), cudaErrorInvalidDevice); /* an error of the caller's own */
        placed_execute(placed, packed != 0, NULL);
        cr_assert_eq(cudaGetLastError(), cudaErrorInvalidDevice, "%s took the caller's error away", placed->way->text);
    }
    expect_cuda(cudaDeviceSynchronize());
}

Test(stream_ways_cuda, every_way_leaves_the_callers_error)
{
    for_every_way(check_last_error);
}

/* Checks the order on the stream: earlier work writes src and workspace, later work overwrites them. */
static void check_order(const struct placed *placed)
{
    placed_clear(placed, NULL);
    for (int run = 0; run < 8; run++) {
        placed_spoil_src(placed, NULL);
        placed_clear(placed, NULL);
        placed_mend_src(placed, NULL);
        placed_execute(placed, run % 4 == 3, NULL);
    }
    placed_spoil_src(placed, NULL);
    placed_expect_same_bits(placed, NULL, "between writes");
    placed_mend_src(placed, NULL);
}

Test(stream_ways_cuda, every_way_in_order_with_what_writes_its_tensors)
{
    for_every_way(check_order);
}

/* Runs all ways of a layer at once, each on a stream of its own that is held up until all their work is queued. */
static void check_at_once(const harness_case *test)
{
    static struct placed placed[MAX_WAYS];
    static cudaStream_t streams[MAX_WAYS];
    struct hold hold;
    size_t count = 0;
    for (size_t w = 0; w < way_count; w++)
        if (place_way(&placed[count], test, &ways[w], 0)) {
            expect_cuda(cudaStreamCreateWithFlags(&streams[count++], cudaStreamNonBlocking));
            taken[w]++;
        }
    hold_init(&hold);
    for (size_t i = 0; i < count; i++)
        hold_up(&hold, streams[i]);
    for (int run = 0; run < 8; run++)
        for (size_t i = 0; i < count; i++) {
            placed_clear(&placed[i], streams[i]);
            placed_execute(&placed[i], true, streams[i]);
        }
    cr_assert_not(hold_gave_up(&hold), "execute waited for its stream");
    let_go(&hold);
    for (size_t i = 0; i < count; i++) {
        placed_expect_same_bits(&placed[i], streams[i], "beside others");
        expect_cuda(cudaStreamDestroy(streams[i]));
        placed_release(&placed[i]);
    }
}

Test(stream_ways_cuda, every_way_beside_the_others_without_waiting)
{
    skip_without_cuda();
    way_count = list_ways(TCONV_BACKEND_CUDA, ways);
    for (size_t i = 0; i < PLACED_LAYERS; i++)
        for (int form = 0; form < PLACED_FORMS; form++) {
            harness_case test = make_placed_case(i, form);
            check_at_once(&test);
            harness_case_destroy(&test);
        }
    say_taken(ways, taken, way_count);
}
