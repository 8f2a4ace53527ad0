/*
 * The corners: families of layers, each written as the problem text of `tconv bench`. A '#' in the text stands for a
 * number that runs over a range (tails of tiles of any size). Every corner comes in every dtype and both layouts; the
 * weight layout goes round from one to the next.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layer.h"

typedef struct family {
    const char *name;
    const char *problem;
    int64_t first, last; /* range of '#'; both 0 where there is none */
} family;

static const family families[] = {
    {"size 1", "ci=1 h=1 w=1 co=1 k=1", 0, 0},
    {"size 1 with everything", "ci=1 h=1 w=1 co=1 k=3x2 s=4x3 p=1x0x1x1 op=3x2 d=2x1 b=1", 0, 0},
    {"no images", "n=0 ci=3 h=4 w=5 co=2 k=3 s=2 b=1", 0, 0},
    {"a row of pixels", "n=2 ci=5 h=1 w=37 co=4 k=1x5 s=1x2 p=0x2 b=1", 0, 0},
    {"a column of pixels", "n=2 ci=5 h=37 w=1 co=4 k=5x1 s=2x1 p=2x0 b=1", 0, 0},
    {"a column sliced", "n=2 ci=2 h=5 w=1 co=3 k=1 ss=40x7x1x1 ds=40x9x1x1", 0, 0},
    {"more than 65,535 images", "n=70000 ci=1 h=1 w=1 co=1 k=1x2 b=1", 0, 0},
    {"more than 65,535 channels", "ci=1 h=1 w=2 co=66000 k=1 s=1 b=1", 0, 0},
    {"more than 65,535 groups", "ci=66000 h=1 w=1 co=66000 k=1x2 g=66000", 0, 0},
    {"more than 65,535 rows", "ci=1 h=33000 w=1 co=1 k=2x1 s=2x1", 0, 0},
    {"a long row", "ci=1 h=1 w=70001 co=1 k=1x3 s=1x2 p=0x1", 0, 0},
    {"stride larger than the kernel", "n=2 ci=4 h=5 w=6 co=3 k=2x3 s=5x7 b=1", 0, 0},
    {"kernel 1, stride 3: phases that are only bias", "n=2 ci=4 h=5 w=6 co=3 k=1 s=3 op=2 b=1", 0, 0},
    {"only bias without bias", "ci=4 h=5 w=6 co=3 k=1 s=3 op=2", 0, 0},
    {"no output with a tap", "n=2 ci=3 h=1 w=1 co=4 k=1 s=4 p=1x1x0x0 op=3 b=1", 0, 0},
    {"no output column with a tap", "ci=3 h=4 w=1 co=4 k=3x1 s=2x4 p=0x1x0x0 op=0x3 b=1", 0, 0},
    {"dilation shares 2 with stride", "n=2 ci=4 h=5 w=6 co=3 k=3 s=4x2 d=2x4 op=3 b=1", 0, 0},
    {"dilation equals stride", "ci=4 h=5 w=6 co=3 k=3x4 s=3x2 d=3x2 b=1", 0, 0},
    {"dilation a multiple of stride", "ci=4 h=5 w=6 co=3 k=3 s=2x3 d=6 b=1", 0, 0},
    {"dilation and stride without a common factor", "ci=4 h=5 w=6 co=3 k=4x5 s=3x5 d=2x3 p=2x4", 0, 0},
    {"dilation beyond the input", "ci=3 h=3 w=4 co=2 k=3x4 d=9x11 b=1", 0, 0},
    {"odd channels", "n=3 ci=13 h=7 w=9 co=11 k=3 s=2 p=1 op=1 b=1", 0, 0},
    {"odd groups", "n=2 ci=15 h=5 w=7 co=21 k=3x5 s=2x1 p=1x2 g=3 b=1", 0, 0},
    {"depthwise", "n=2 ci=33 h=6 w=19 co=33 k=4 s=2 p=1 g=33 b=1", 0, 0},
    {"depthwise, enough images for tiles in shared memory", "n=512 ci=8 h=16 w=5 co=8 k=3 p=1 g=8 b=1", 0, 0},
    {"depthwise, a long kernel", "n=2 ci=3 h=21 w=39 co=3 k=9x7 p=4x2 g=3 b=1", 0, 0},
    {"depthwise, more taps than a segment", "n=1 ci=2 h=30 w=19 co=2 k=54x3 s=1x2 p=20x1 g=2 b=1", 0, 0},
    {"depthwise, rows apart", "n=1 ci=5 h=24 w=17 co=5 k=5x3 s=1x2 d=2x3 p=3 g=5 b=1", 0, 0},
    {"depthwise, dilation shares a factor", "n=2 ci=2 h=13 w=19 co=4 k=7x5 s=3x2 d=2x4 p=5x3 op=1 g=2 b=1", 0, 0},
    {"depthwise, one row", "n=3 ci=7 h=1 w=70 co=7 k=1x12 s=1x2 p=0x5 g=7 b=1", 0, 0},
    {"depthwise with a multiplier", "n=2 ci=9 h=6 w=7 co=27 k=3 s=1 p=1 g=9", 0, 0},
    {"many channels to one", "n=1 ci=300 h=3 w=5 co=1 k=3 s=2 p=1", 0, 0},
    {"one channel to many", "n=1 ci=1 h=3 w=5 co=300 k=3 s=2 p=1 b=1", 0, 0},
    {"padding cuts all but one pixel", "ci=4 h=5 w=5 co=3 k=3 p=3", 0, 0},
    {"padding eats the kernel", "n=2 ci=4 h=9 w=12 co=3 k=3x4 p=4x5x3x4 b=1", 0, 0},
    {"padding eats the kernel, strided", "n=2 ci=4 h=9 w=12 co=3 k=3x4 s=2x3 p=7x5x4x8 op=1x2 b=1", 0, 0},
    {"padding on one side: top", "ci=4 h=6 w=7 co=3 k=3 s=2 p=3x0x0x0 b=1", 0, 0},
    {"padding on one side: left", "ci=4 h=6 w=7 co=3 k=3 s=2 p=0x3x0x0 b=1", 0, 0},
    {"padding on one side: bottom", "ci=4 h=6 w=7 co=3 k=3 s=2 p=0x0x3x0 b=1", 0, 0},
    {"padding on one side: right", "ci=4 h=6 w=7 co=3 k=3 s=2 p=0x0x0x3 b=1", 0, 0},
    {"output padding at its limit by stride", "n=2 ci=3 h=4 w=5 co=4 k=3 s=3x4 p=1 op=2x3 b=1", 0, 0},
    {"output padding at its limit by dilation", "n=2 ci=3 h=4 w=5 co=4 k=3 d=3x4 op=2x3 b=1", 0, 0},
    {"uneven everything", "n=2 ci=6 h=3 w=11 co=4 k=5x2 s=1x3 p=2x0x3x1 op=0x1 d=1x2 g=2 b=1", 0, 0},
    {"kernel larger than the input", "n=2 ci=3 h=2 w=3 co=4 k=7x9 p=2x3 b=1", 0, 0},
    {"kernel larger than the input, strided", "ci=3 h=2 w=3 co=4 k=11x8 s=3x2 p=1x2x3x4", 0, 0},
    {"many taps", "ci=2 h=2 w=2 co=2 k=19x21 b=1", 0, 0},
    {"many taps in a row", "ci=1 h=1 w=40 co=2 k=1x300", 0, 0},
    {"images of 16 columns, more than multiprocessors", "n=40 ci=8 h=16 w=16 co=8 k=4 s=2 p=1 b=1", 0, 0},
    {"images of 32 columns and 16 rows", "n=20 ci=8 h=16 w=32 co=8 k=4 s=2 p=1 b=1", 0, 0},
    {"several rows of an image in a tile, stride 2", "n=40 ci=8 h=12 w=# co=8 k=4 s=2 p=1 b=1", 21, 24},
    {"several rows of an image in a tile", "n=40 ci=8 h=13 w=# co=40 k=3 p=1 b=1", 20, 22},
    {"images of one pixel, many channels", "n=70 ci=100 h=1 w=1 co=40 k=4x3 p=1x0 b=1", 0, 0},
    {"images of one pixel, groups", "n=3 ci=128 h=1 w=1 co=66 k=2x5 p=0x1 g=2 b=1", 0, 0},
    {"images of one pixel, channels apart", "n=5 ci=40 h=1 w=1 co=24 k=3 b=1 ss=96x2x1x1", 0, 0},
    {"outputs without taps, many channels", "n=2 ci=64 h=5 w=9 co=72 k=3 s=5x4 d=2x1 b=1", 0, 0},
    {"a spread kernel over small images", "n=8 ci=20 h=6 w=6 co=8 k=5 d=5 b=1", 0, 0},
    {"channels that are no whole vectors", "n=3 ci=37 h=6 w=7 co=41 k=3 p=1 b=1", 0, 0},
    {"one tap, planes of whole vectors", "n=2 ci=# h=8 w=21 co=70 k=2 s=2 b=1", 15, 18},
    {"one tap, planes of whole vectors, weights in turn", "n=1 ci=600 h=4 w=34 co=34 k=2 s=2", 0, 0},
    {"one tap, planes of whole vectors, stride 1", "n=2 ci=40 h=12 w=26 co=130 k=1 b=1", 0, 0},
    {"one tap, planes of half vectors", "n=3 ci=# h=14 w=14 co=70 k=2 s=2 b=1", 63, 66},
    {"one tap, planes of half vectors, longer than a tile", "n=2 ci=200 h=30 w=26 co=130 k=1", 0, 0},
    {"one tap, planes of half vectors, sliced", "n=2 ci=70 h=9 w=17 co=40 k=1 ss=15000x156x17x1 b=1", 0, 0},
    {"one tap, planes of two elements, groups", "n=3 ci=96 h=10 w=15 co=72 k=2 s=2 g=3 b=1", 0, 0},
    {"one tap, odd planes", "n=3 ci=# h=7 w=9 co=40 k=2 s=2 b=1", 31, 33},
    {"one tap, odd planes, longer than a tile", "n=2 ci=48 h=17 w=17 co=130 k=1 b=1", 0, 0},
    {"one tap, several images to a tile", "n=# ci=40 h=10 w=14 co=66 k=2 s=2 b=1", 5, 7},
    {"one tap, several images to a tile, stride 1", "n=9 ci=72 h=6 w=12 co=130 k=1", 0, 0},
    {"one tap, stride 4, groups", "n=3 ci=64 h=9 w=12 co=40 k=4 s=4 g=2 b=1", 0, 0},
    {"wide images, 16 output channels, groups", "n=1 ci=64 h=5 w=200 co=32 k=5x3 p=2x0 g=2 b=1", 0, 0},
    {"wide images, wide kernel, few output channels", "n=1 ci=16 h=3 w=# co=20 k=1x7 p=0x3x0x2 b=1", 413, 416},
    {"wide images, wide kernel, groups", "n=2 ci=32 h=1 w=209 co=60 k=1x4 p=0x2x0x1 g=2 b=1", 0, 0},
    {"wide images, spread kernel", "n=1 ci=64 h=20 w=60 co=96 k=3 p=2 d=2 b=1", 0, 0},
    {"huge stride over one pixel", "ci=3 h=1 w=1 co=4 k=3x2 s=1099511627776x1099511627776 b=1", 0, 0},
    {"huge dilation of one tap", "ci=3 h=4 w=5 co=4 k=1 d=1099511627776 s=2 b=1", 0, 0},
    {"huge stride, huge padding", "ci=2 h=2 w=1 co=2 k=1 s=1099511627776x1 p=1099511627770x0x0x0", 0, 0},
    {"large stride", "ci=2 h=2 w=3 co=2 k=3 s=61x67 p=1 b=1", 0, 0},
    {"kernel equals stride, 2", "n=2 ci=17 h=7 w=9 co=19 k=2 s=2 b=1", 0, 0},
    {"kernel equals stride, 4x3", "n=2 ci=5 h=7 w=9 co=6 k=4x3 s=4x3 b=1", 0, 0},
    {"kernel equals stride, 2x8", "n=2 ci=17 h=3 w=9 co=12 k=2x8 s=2x8 b=1", 0, 0},
    {"columns at once: several taps", "n=3 ci=40 h=3 w=9 co=24 k=3x16 s=2x8 p=1x4 b=1", 0, 0},
    {"columns at once: groups", "n=2 ci=128 h=2 w=5 co=20 k=1x8 s=1x4 p=0x2 g=2 b=1", 0, 0},
    {"groups seen as one", "n=3 ci=21 h=# w=11 co=36 k=3 s=2 p=1 op=1 g=3 b=1", 7, 9},
    {"groups seen as one, by eight", "n=2 ci=128 h=5 w=7 co=48 k=3x2 s=2 g=16 b=1", 0, 0},
    {"groups seen as one: several tiles", "n=5 ci=64 h=20 w=23 co=264 k=2x3 s=1x2 p=0x1 g=8", 0, 0},
    {"groups seen as one: one pixel", "n=9 ci=64 h=1 w=1 co=24 k=4x3 g=4 b=1", 0, 0},
    {"groups seen as one: columns at once", "n=2 ci=64 h=6 w=9 co=20 k=4 s=4 g=4 b=1", 0, 0},
    {"groups seen as one: a large kernel", "n=2 ci=24 h=4 w=5 co=40 k=13x11 s=3 p=5 g=4 b=1", 0, 0},
    {"columns at once: odd addresses", "n=2 ci=8 h=3 w=5 co=6 k=4 s=4 b=1 ds=1451x241x20x1", 0, 0},
    {"kernels longer than the input", "n=3 ci=20 h=1 w=19 co=2 k=1x100 s=1x33 p=0x17 b=1", 0, 0},
    {"long kernels: groups, dilation", "n=2 ci=48 h=4 w=5 co=6 k=5x50 s=3x40 d=2x3 p=4x10 g=3 b=1", 0, 0},
    {"long kernels: stride", "n=2 ci=17 h=3 w=9 co=3 k=5x40 s=3x# p=2x7 b=1", 31, 36},
    {"long kernels: whole strides", "n=3 ci=21 h=1 w=33 co=1 k=1x480 s=1x48 p=0x48 b=1", 0, 0},
    {"long kernels: whole strides, down", "n=2 ci=18 h=19 w=1 co=1 k=512x1 s=32x1 p=64x0", 0, 0},
    {"bilinear upsampling", "n=1 ci=21 h=5 w=6 co=21 k=16 s=8 p=4 g=21", 0, 0},
    {"a slice of images", "n=3 ci=4 h=5 w=6 co=3 k=3 p=1 b=1 ss=480x30x6x1 ds=360x30x6x1", 0, 0},
    {"few output channels: columns in several tiles", "ci=18 h=7 w=150 co=1 k=9 s=4 p=4 op=3", 0, 0},
    {"few output channels: slices", "n=2 ci=16 h=4 w=33 co=3 k=3 p=1 b=1 ss=3000x140x33x1 ds=600x140x33x1", 0, 0},
    {"few output channels: width", "n=7 ci=20 h=5 w=# co=3 k=4 s=2 p=1 b=1", 15, 35},
    {"few output channels: kernel height", "n=4 ci=17 h=8 w=9 co=2 k=#x3 s=2 p=1 b=1", 2, 7},
    {"few output channels: many taps, whole vectors", "n=2 ci=40 h=6 w=264 co=1 k=9 s=# p=4 b=1", 2, 4},
    {"few output channels: runs of three", "n=5 ci=20 h=5 w=# co=2 k=5 s=3 p=1 b=1", 30, 40},
    {"few output channels: groups of whole stages", "n=3 ci=64 h=6 w=40 co=6 k=4 s=2 p=1 g=2 b=1", 0, 0},
    {"few output channels: groups that end within a stage", "n=3 ci=80 h=6 w=40 co=6 k=4 s=2 p=1 g=2", 0, 0},
    {"few output channels: large kernels", "n=2 ci=24 h=9 w=150 co=3 k=# p=3 b=1", 5, 7},
    {"few output channels: four, a large kernel", "n=3 ci=70 h=8 w=20 co=4 k=5x6 p=2 b=1", 0, 0},
    {"few output channels: odd planes of dst", "n=2 ci=32 h=6 w=64 co=2 k=4 s=2 p=1 b=1 ds=4001x1537x128x1", 0, 0},
    {"tail of a tile: width", "n=1 ci=3 h=2 w=# co=2 k=3 p=1", 1, 67},
    {"tail of a tile: width, stride 2", "n=1 ci=3 h=2 w=# co=2 k=4 s=2 p=1 b=1", 1, 40},
    {"tail of a tile: width, stride 3", "n=1 ci=2 h=1 w=# co=3 k=1x3 s=1x3", 1, 24},
    {"tail of a tile: height", "n=1 ci=3 h=# w=3 co=2 k=3 p=1", 1, 19},
    {"tail of a tile: output channels", "n=1 ci=3 h=2 w=9 co=# k=3 p=1 b=1", 1, 35},
    {"tail of a tile: input channels", "n=1 ci=# h=2 w=9 co=5 k=3 s=2 p=1", 1, 35},
    {"tail of a tile: images", "n=# ci=2 h=2 w=3 co=2 k=2", 1, 9},
    {"tail of a tile: groups", "n=1 ci=# h=2 w=5 co=# k=3 p=1 g=#", 1, 20},
    {"tail of a tile: kernel width", "n=1 ci=2 h=2 w=9 co=3 k=2x# s=1x2", 1, 20},
    {"tail of a tile: stride", "n=1 ci=2 h=3 w=9 co=3 k=5x7 s=# p=1", 1, 9},
};

static const family families_in_depth[] = {
    {"depth: one plane of everything", "n=2 ci=3 z=1 h=2 w=3 co=2 k=1x2x3 s=3x2x1 op=2x1x0 b=1", 0, 0},
    {"depth: no images", "n=0 ci=3 z=4 h=4 w=5 co=2 k=3 s=2 b=1", 0, 0},
    {"depth: a kernel of one plane", "n=2 ci=3 z=4 h=3 w=5 co=4 k=1x3x3 s=1x2x2 p=0x1x1 b=1", 0, 0},
    {"depth: a kernel of one column of planes", "n=2 ci=5 z=6 h=3 w=7 co=4 k=4x1x1 s=2x1x1 p=1x0x0 b=1", 0, 0},
    {"depth: kernel 1x2x2 side by side", "n=2 ci=9 z=5 h=4 w=6 co=7 k=1x2x2 s=1x2x2 b=1", 0, 0},
    {"depth: kernel equals stride", "n=2 ci=17 z=3 h=4 w=6 co=9 k=2 s=2 b=1", 0, 0},
    {"depth: kernel equals stride, 4x2x3", "n=1 ci=6 z=3 h=4 w=5 co=5 k=4x2x3 s=4x2x3", 0, 0},
    {"depth: overlapping by one plane", "n=2 ci=8 z=4 h=5 w=6 co=8 k=3 s=2 p=1 op=1 b=1", 0, 0},
    {"depth: two taps in each phase", "n=1 ci=16 z=4 h=4 w=6 co=9 k=4 s=2 p=1 b=1", 0, 0},
    {"depth: dense", "n=1 ci=8 z=5 h=6 w=7 co=6 k=3x5x7 b=1", 0, 0},
    {"depth: stride larger than the kernel", "n=2 ci=4 z=3 h=4 w=5 co=3 k=2x3x1 s=5x4x2 b=1", 0, 0},
    {"depth: phases that are only bias", "n=2 ci=4 z=3 h=3 w=4 co=3 k=1x2x3 s=3x2x1 op=2x1x0 b=1", 0, 0},
    {"depth: no plane with a tap", "n=2 ci=3 z=1 h=3 w=4 co=4 k=1x3x3 s=4x1x1 p=1x0x0x0x0x0 op=3x0x0 b=1", 0, 0},
    {"depth: dilation shares 2 with stride", "n=2 ci=4 z=4 h=4 w=5 co=3 k=3 s=4x2x1 d=2x4x1 op=3x3x0 b=1", 0, 0},
    {"depth: dilation equals stride", "ci=4 z=3 h=4 w=5 co=3 k=3x4x2 s=3x2x2 d=3x2x2 b=1", 0, 0},
    {"depth: dilation a multiple of stride", "ci=4 z=4 h=4 w=5 co=3 k=3 s=2 d=6x2x4 b=1", 0, 0},
    {"depth: output padding at its limit by stride", "ci=3 z=2 h=3 w=4 co=2 k=3x2x2 s=4x2x3 op=3x1x2 b=1", 0, 0},
    {"depth: output padding at its limit by dilation", "ci=3 z=2 h=3 w=4 co=2 k=2x3x2 d=4x2x3 op=3x1x2 b=1", 0, 0},
    {"depth: padding eats the kernel", "n=2 ci=4 z=9 h=6 w=7 co=3 k=3 s=1x2x1 p=4x1x3x3x2x3 b=1", 0, 0},
    {"depth: padding in front alone", "ci=4 z=4 h=5 w=6 co=3 k=3 s=2 p=3x0x0x0x0x0 b=1", 0, 0},
    {"depth: padding behind alone", "ci=4 z=4 h=5 w=6 co=3 k=3 s=2 p=0x0x0x3x0x0 b=1", 0, 0},
    {"depth: padding cuts all but one plane", "ci=4 z=5 h=4 w=5 co=3 k=3 p=3x1x1 b=1", 0, 0},
    {"depth: one input plane", "n=2 ci=4 z=1 h=5 w=6 co=3 k=4x3x3 s=2 p=1 b=1", 0, 0},
    {"depth: one row", "n=2 ci=4 z=5 h=1 w=9 co=3 k=3x1x4 s=2x1x2 p=1x0x1 b=1", 0, 0},
    {"depth: one column", "n=2 ci=4 z=5 h=9 w=1 co=3 k=3x4x1 s=2x2x1 p=1x1x0 b=1", 0, 0},
    {"depth: one pixel in each plane", "n=2 ci=4 z=13 h=1 w=1 co=3 k=5x1x1 s=3x1x1 p=2x0x0 b=1", 0, 0},
    {"depth: a kernel larger than the input", "ci=3 z=2 h=3 w=2 co=4 k=5x4x6 s=1x2x1 p=2x1x2 b=1", 0, 0},
    {"depth: more than 65,535 planes", "ci=1 z=35000 h=1 w=1 co=1 k=2x1x1 s=2x1x1", 0, 0},
    {"depth: more than 65,535 planes, one row", "ci=1 z=35000 h=1 w=2 co=1 k=3x1x2 s=2x1x1 b=1", 0, 0},
    {"depth: many phases", "n=2 ci=3 z=3 h=2 w=3 co=2 k=20x2x2 s=18x1x2 b=1", 0, 0},
    {"depth: huge stride over one plane", "ci=3 z=1 h=2 w=3 co=4 k=3x2x2 s=1099511627776x2x1 b=1 d=1x1x2", 0, 0},
    {"depth: odd planes", "n=2 ci=5 z=4 h=3 w=5 co=7 k=2x3x3 s=2 p=0x1x1 b=1", 0, 0},
    {"depth: groups", "n=2 ci=12 z=3 h=4 w=5 co=8 k=3 s=2 p=1 g=4 b=1", 0, 0},
    {"depth: depthwise", "n=2 ci=9 z=4 h=5 w=6 co=9 k=4 s=2 p=1 g=9 b=1", 0, 0},
    {"depth: a slice", "n=2 ci=4 z=3 h=4 w=5 co=3 k=2 s=2 b=1 ss=480x70x20x5x1 ds=1600x500x80x10x1", 0, 0},
    {"depth: a slice, overlapping", "n=2 ci=4 z=3 h=4 w=5 co=3 k=3 p=1 b=1 ss=480x70x20x5x1 ds=480x63x20x5x1", 0, 0},
    {"depth: a slice of one pixel in each plane", "n=2 ci=2 z=5 h=1 w=1 co=3 k=1 ss=40x7x1x1x1 ds=40x9x1x1x1", 0, 0},
    {"depth: volumes whose planes have halves of two sizes", "n=3 ci=32 z=5 h=3 w=4 co=40 k=3 s=2 p=1 b=1", 0, 0},
    {"depth: volumes whose planes are the bias in turn", "n=5 ci=32 z=4 h=3 w=5 co=24 k=3 s=2 p=1 d=2 b=1", 0, 0},
    {"depth: volumes of fewer pixels than a tile", "n=9 ci=32 z=3 h=2 w=3 co=32 k=3x1x2 p=2x0x1 b=1", 0, 0},
    {"depth: planes share K-tiles, odd planes", "n=3 ci=64 z=5 h=4 w=4 co=72 k=2 s=2 b=1", 0, 0},
    {"depth: planes share K-tiles, padded", "n=2 ci=64 z=7 h=4 w=4 co=64 k=3 s=2 p=1 op=1 b=1", 0, 0},
    {"depth: planes further apart than TMA steps", "n=2 ci=64 z=3 h=4 w=4 co=64 k=2x2x2 s=9x2x2 op=7x0x0", 0, 0},
    {"depth: groups of vectors of channels", "n=3 ci=32 z=5 h=8 w=8 co=32 k=3 s=2 p=1 g=4 b=1", 0, 0},
    {"depth: kernel planes that reach no plane", "n=2 ci=16 z=2 h=4 w=8 co=16 k=5x3x3 p=5x1x1x0x1x1 b=1", 0, 0},
    {"depth: tail: planes", "n=1 ci=3 z=# h=2 w=5 co=2 k=3 s=2 p=1", 1, 5},
    {"depth: tail: kernel planes", "n=1 ci=2 z=3 h=2 w=5 co=3 k=#x2x3 s=2x1x1 b=1", 1, 6},
    {"depth: tail: input channels", "n=1 ci=# z=2 h=2 w=5 co=5 k=3x2x2 s=1x2x2", 1, 9},
};

#define FAMILY_COUNT       (sizeof families / sizeof families[0])
#define DEPTH_FAMILY_COUNT (HARNESS_DRAWS_DEPTH ? sizeof families_in_depth / sizeof families_in_depth[0] : 0)

static const family *family_at(size_t index)
{
    return index < FAMILY_COUNT ? &families[index] : &families_in_depth[index - FAMILY_COUNT];
}

/* Returns how many corners a family has, without their forms. */
static size_t corners_of(const family *of)
{
    return (size_t)(of->last - of->first + 1);
}

enum { LAYOUTS = 2, WEIGHT_LAYOUTS = 3 };

size_t harness_corner_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < FAMILY_COUNT + DEPTH_FAMILY_COUNT; ++i)
        count += corners_of(family_at(i));
    return count * HARNESS_CORNER_FORMS;
}

/* Slices are written for one layout: NHWC has its pixel stride in place of the channel stride. */
static void swap_slice(int64_t strides[4], int64_t *stride_d, const harness_view *of)
{
    const int64_t pixel = of->shape[1] + 3, width = of->shape[3];
    if (strides[0] == 0)
        return;
    strides[1] = 1;
    strides[3] = pixel;
    strides[2] = width * pixel;
    if (of->planes > 1)
        *stride_d = harness_view_rows(of) * width * pixel;
    strides[0] *= 2;
}

const char *harness_corner(size_t index, harness_layer *layer)
{
    const size_t form = index % HARNESS_CORNER_FORMS;
    size_t row = index / HARNESS_CORNER_FORMS, which = 0;
    for (; row >= corners_of(family_at(which)); ++which)
        row -= corners_of(family_at(which));

    const family *chosen = family_at(which);
    const int64_t number = chosen->first + (int64_t)row;
    char text[256], message[128];
    size_t length = 0;
    for (const char *at = chosen->problem; *at != '\0' && length < sizeof text - 24; ++at) {
        if (*at == '#')
            length += (size_t)snprintf(text + length, sizeof text - length, "%" PRId64, number);
        else
            text[length++] = *at;
    }
    text[length] = '\0';
    harness_problem_parse(text, layer, message, sizeof message);
    tconv_desc *desc = &layer->desc;
    desc->dtype = (tconv_dtype)(form / LAYOUTS);
    desc->layout = (tconv_layout)(form % LAYOUTS);
    desc->weight_layout = (tconv_weight_layout)((index / LAYOUTS + row) % WEIGHT_LAYOUTS);
    desc->math = TCONV_MATH_STRICT;
    if (desc->layout == TCONV_NHWC) {
        const harness_view src = harness_src_view(desc), dst = harness_dst_view(desc);
        swap_slice(desc->src_strides, &desc->src_stride_d, &src);
        swap_slice(desc->dst_strides, &desc->dst_stride_d, &dst);
    }
    return chosen->name;
}
