/*
 * Takes rows through a layer's post-ops (finish.h); text that finish.inc.h includes for each dtype, with the macros of
 * rows.inc.h. Of a row POST_VECTORS vectors at a time are summed in a buffer, go through the list one post-op after the
 * other, and are stored. A row's last vector is filled up with zeros.
 *
 * A run is the outputs of an image that lie side by side whatever the strides are: a channel's plane (NCHW) or a
 * pixel's channels (NHWC). A row may go on from one run into the next, which follows it in dst, but not in the addend.
 */

/* Where the first output of a row lies in its layer: its image, its run of the image, and its index in the run. Outputs
 * of a row lie `step` apart in dst; where that is not 1, they are all of one run. */
struct NAME(place) {
    int64_t image, run, inside, step;
    int64_t length; /* of a run */
    bool planes;    /* NCHW: runs are channels */
};

static struct NAME(place) NAME(place_of)(const tconv_cpu_posts *posts, const ELEMENT *at, int64_t step)
{
    const tconv_problem *problem = posts->problem;
    const bool planes = problem->layout == TCONV_NCHW;
    const int64_t index = at - (const ELEMENT *)posts->dst, run_stride = planes ? problem->dst.c : problem->dst.w;
    const int64_t image_stride = problem->dst.n;
    int64_t image, run, inside = index;
    if (image_stride >= run_stride) {
        image = quotient(inside, image_stride);
        inside -= image * image_stride;
        run = quotient(inside, run_stride);
        inside -= run * run_stride;
    } else { /* images are planes of a channel (core/volume.h) */
        run = quotient(inside, run_stride);
        inside -= run * run_stride;
        image = quotient(inside, image_stride);
        inside -= image * image_stride;
    }
    return (struct NAME(place)){.image = image,
                                .run = run,
                                .inside = inside,
                                .step = step,
                                .length = planes ? problem->h.out * problem->w.out : problem->out_channels,
                                .planes = planes};
}

/* Writes zeros behind the last of some numbers, as far as its vector goes. */
ALWAYS_INLINE void NAME(fill_up)(REAL *numbers, int64_t count)
{
    for (; count % LANES != 0; count++)
        numbers[count] = 0;
}

/* Returns the numbers that outputs have of their channels, [out_channels]. They are read where they lie if they can be, and
 * else copied to `copied`. */
ALWAYS_INLINE SUMS(operand)
    NAME(channel_operand)(const REAL *numbers, const struct NAME(place) * place, int64_t count, REAL *copied)
{
    const int64_t whole = (count + LANES - 1) / LANES * LANES;
    if (place->planes && place->inside + (count - 1) * place->step < place->length) {
        for (int i = 0; i < LANES; i++)
            copied[i] = numbers[place->run];
        return (SUMS(operand)){copied, 0};
    }
    if (!place->planes && place->inside + whole <= place->length)
        return (SUMS(operand)){numbers + place->inside, LANES};
    for (int64_t i = 0, run = place->run, inside = place->inside; i < count; i++) {
        copied[i] = numbers[place->planes ? run : inside];
        if (++inside == place->length) {
            inside = 0;
            run++;
        }
    }
    NAME(fill_up)(copied, count);
    return (SUMS(operand)){copied, LANES};
}

/* Copies the outputs' elements of the addend, converted to the type of the sums. */
ALWAYS_INLINE SUMS(operand) NAME(addend)(const tconv_cpu_posts *posts, const ELEMENT *addend,
                                         const struct NAME(place) * place, int64_t count, REAL *copied)
{
    const tconv_strides *strides = &posts->problem->addend;
    const int64_t run_stride = place->planes ? strides->c : strides->w;
    const ELEMENT *run = addend + place->image * strides->n + place->run * run_stride;
    if (place->step == 1 && place->inside + count <= place->length) {
        NAME(load_row)(copied, run + place->inside, count);
    } else {
        for (int64_t i = 0, inside = place->inside; i < count; i += LANES) {
            ELEMENT gathered[LANES] = {0};
            for (int64_t lane = 0; lane < LANES && i + lane < count; lane++) {
                gathered[lane] = run[inside];
                inside += place->step;
                if (inside == place->length) {
                    inside = 0;
                    run += run_stride;
                }
            }
            CONVERT_IN(copied + i, gathered);
        }
    }
    NAME(fill_up)(copied, count);
    return (SUMS(operand)){copied, LANES};
}

/* Takes outputs through the list, from the one at a place on. */
static void NAME(apply_posts)(SUMS(vector) * values, int64_t count, const tconv_cpu_posts *posts,
                              const struct NAME(place) * place)
{
    const tconv_problem *problem = posts->problem;
    const tconv_desc *desc = &problem->desc;
    const SUMS(post_values) rows = {(REAL *)values, NULL, 0, 1, (count + LANES - 1) / LANES};
    SUMS(vector) copied[2][POST_VECTORS];
    for (int p = 0; p < desc->post_count; p++) {
        const tconv_post_op *post = &desc->post[p];
        const int channel_vectors = tconv_post_channel_vectors(post->kind);
        SUMS(operand) of[2] = {{NULL, 0}, {NULL, 0}};
        if (post->kind == TCONV_POST_ADD_TENSOR)
            of[0] = NAME(addend)(posts, posts->operands[p], place, count, (REAL *)copied[0]);
        else if (channel_vectors > 0)
            of[0] = NAME(channel_operand)(posts->operands[p], place, count, (REAL *)copied[0]);
        if (channel_vectors > 1)
            of[1] = NAME(channel_operand)((const REAL *)posts->operands[p] + problem->out_channels, place, count,
                                          (REAL *)copied[1]);
        if (!tconv_post_scales_and_shifts(desc, p)) {
            SUMS(apply_post)(&rows, post, of);
            continue;
        }
        of[1] = NAME(channel_operand)(posts->operands[++p], place, count, (REAL *)copied[1]);
        SUMS(scale_and_shift)(&rows, &of[0], &of[1]);
    }
}

/* Writes what a row's outputs are before the first post-op: sums, bias and what they held. */
static void NAME(begin_posts)(SUMS(vector) * values, const ELEMENT *to, const REAL *from, int64_t count,
                              int64_t channel, const tconv_cpu_finish *finish)
{
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t some = count - i < LANES ? count - i : LANES;
        SUMS(vector) sums = {0};
        if (some == LANES)
            sums = *(const SUMS(loose_vector) *)(from + i);
        else
            copy_short(&sums, from + i, (size_t)some * sizeof(REAL), sizeof sums);
        if (finish->steps & TCONV_CPU_ADD_BIAS) {
            sums += NAME(bias_lanes)(finish, channel, some);
            channel = finish->row_channels > 1 ? (channel + some) % finish->row_channels : channel;
        }
        if (finish->steps & TCONV_CPU_ADD_HELD) {
            REAL held[LANES] = {0};
            NAME(load_row)(held, to + i, some);
            sums = *(const SUMS(loose_vector) *)held + sums;
        }
        values[i / LANES] = sums;
    }
}

/* Makes outputs of a row of a layer with post-ops. `at` is the first one's address in dst, and from one to the next there
 * it is `step` elements; they are stored side by side at `to`, which holds what dst does. */
static NOT_INLINED void NAME(finish_with_posts)(ELEMENT *to, const REAL *from, int64_t count, int64_t channel,
                                                const tconv_cpu_finish *finish, const ELEMENT *at, int64_t step)
{
    SUMS(vector) values[POST_VECTORS];
    for (int64_t some; count > 0; count -= some, to += some, from += some, at += some * step) {
        some = count < POST_VECTORS * LANES ? count : POST_VECTORS * LANES;
        const struct NAME(place) place = NAME(place_of)(finish->posts, at, step);
        NAME(begin_posts)(values, to, from, some, channel, finish);
        NAME(apply_posts)(values, some, finish->posts, &place);
        NAME(store_row)(to, (const REAL *)values, some);
        channel = finish->row_channels > 1 ? (channel + some) % finish->row_channels : channel;
    }
}
