/*
 * Interleaves vectors; text that is included once for each type of sums, after microkernel.inc.h, with the same macros.
 *
 *     interleave_n(out, in): out is in[0][0], in[1][0], ..., in[n - 1][0], in[0][1], ... in n vectors
 *
 * The column phases of a row become the row that way (depth-to-space). n = 2 and n = 3 are shuffles of two vectors at a time, and so is n = 5, one more vector at a time. 2n interleaves the
 * even vectors and the odd ones by n, and then both results by 2. Any other n goes through memory.
 */
#if LANES == 2
#define EACH_LANE(index) index(0), index(1)
#elif LANES == 4
#define EACH_LANE(index) index(0), index(1), index(2), index(3)
#elif LANES == 8
#define EACH_LANE(index) index(0), index(1), index(2), index(3), index(4), index(5), index(6), index(7)
#else
#define EACH_LANE(index)                                                                                               \
    index(0), index(1), index(2), index(3), index(4), index(5), index(6), index(7), index(8), index(9), index(10),     \
        index(11), index(12), index(13), index(14), index(15)
#endif

/* Interleaves through memory, for any n. */
ALWAYS_INLINE void NAME(interleave_any)(NAME(vector) * out, const NAME(vector) * in, const int n)
{
    for (int i = 0; i < LANES; i++)
        for (int r = 0; r < n; r++)
            ((REAL *)out)[i * n + r] = ((const REAL *)in)[r * LANES + i];
}

#if HAVE_SHUFFLE

#define LOW(i)  ((i) / 2 + (i) % 2 * LANES)
#define HIGH(i) ((i) / 2 + (i) % 2 * LANES + LANES / 2)
ALWAYS_INLINE void NAME(interleave_2)(NAME(vector) * out, const NAME(vector) * in)
{
    NAME(vector) low = __builtin_shufflevector(in[0], in[1], EACH_LANE(LOW));
    /* cppcheck-suppress ctuArrayIndex ; it counts the bytes of a vector as one */
    out[1] = __builtin_shufflevector(in[0], in[1], EACH_LANE(HIGH));
    out[0] = low;
}
#undef LOW
#undef HIGH

/* Returns every second lane of two vectors, from the first on or from the second. */
#define EVEN(i) (2 * (i))
#define ODD(i)  (2 * (i) + 1)
ALWAYS_INLINE NAME(vector) NAME(every_second)(NAME(vector) first, NAME(vector) second, const bool odd)
{
    if (odd)
        return __builtin_shufflevector(first, second, EACH_LANE(ODD));
    return __builtin_shufflevector(first, second, EACH_LANE(EVEN));
}
#undef EVEN
#undef ODD

/* Lane i of output J of COUNT vectors comes from lane SOURCE of vector RESIDUE. */
#define RESIDUE(i)   ((J * LANES + (i)) % COUNT)
#define SOURCE(i)    ((J * LANES + (i)) / COUNT)
#define FIRST_TWO(i) (RESIDUE(i) == 0 ? SOURCE(i) : RESIDUE(i) == 1 ? LANES + SOURCE(i) : 0)
#define THIRD(i)     (RESIDUE(i) == 2 ? LANES + SOURCE(i) : (i))
#define FOURTH(i)    (RESIDUE(i) == 3 ? LANES + SOURCE(i) : (i))
#define FIFTH(i)     (RESIDUE(i) == 4 ? LANES + SOURCE(i) : (i))
#define OUT_OF_THREE                                                                                                   \
    __builtin_shufflevector(__builtin_shufflevector(in[0], in[1], EACH_LANE(FIRST_TWO)), in[2], EACH_LANE(THIRD))
#define OUT_OF_FIVE                                                                                                    \
    __builtin_shufflevector(__builtin_shufflevector(OUT_OF_THREE, in[3], EACH_LANE(FOURTH)), in[4], EACH_LANE(FIFTH))

ALWAYS_INLINE void NAME(interleave_3)(NAME(vector) * out, const NAME(vector) * from)
{
    NAME(vector) in[3]; /* out and from may be the same */
    UNROLL
    for (int r = 0; r < 3; r++)
        in[r] = from[r];
#define COUNT 3
#define J     0
    out[0] = OUT_OF_THREE;
#undef J
#define J 1
    out[1] = OUT_OF_THREE;
#undef J
#define J 2
    out[2] = OUT_OF_THREE;
#undef J
#undef COUNT
}

ALWAYS_INLINE void NAME(interleave_5)(NAME(vector) * out, const NAME(vector) * from)
{
    NAME(vector) in[5]; /* out and from may be the same */
    UNROLL
    for (int r = 0; r < 5; r++)
        in[r] = from[r];
#define COUNT 5
#define J     0
    out[0] = OUT_OF_FIVE;
#undef J
#define J 1
    out[1] = OUT_OF_FIVE;
#undef J
#define J 2
    out[2] = OUT_OF_FIVE;
#undef J
#define J 3
    out[3] = OUT_OF_FIVE;
#undef J
#define J 4
    out[4] = OUT_OF_FIVE;
#undef J
#undef COUNT
}
#undef RESIDUE
#undef SOURCE
#undef FIRST_TWO
#undef THIRD
#undef FOURTH
#undef FIFTH
#undef OUT_OF_THREE
#undef OUT_OF_FIVE

#define DEFINE_DOUBLE(half, whole)                                                                                     \
    ALWAYS_INLINE void NAME(interleave_##whole)(NAME(vector) * out, const NAME(vector) * in)                           \
    {                                                                                                                  \
        NAME(vector) even[half], odd[half], pair[2];                                                                   \
        UNROLL                                                                                                         \
        for (int i = 0; i < (half); i++) {                                                                             \
            even[i] = in[2 * i];                                                                                       \
            odd[i] = in[2 * i + 1];                                                                                    \
        }                                                                                                              \
        NAME(interleave_##half)(even, even);                                                                           \
        NAME(interleave_##half)(odd, odd);                                                                             \
        UNROLL                                                                                                         \
        for (int i = 0; i < (half); i++) {                                                                             \
            pair[0] = even[i];                                                                                         \
            pair[1] = odd[i];                                                                                          \
            NAME(interleave_2)(out + 2 * i, pair);                                                                     \
        }                                                                                                              \
    }
DEFINE_DOUBLE(2, 4)
DEFINE_DOUBLE(4, 8)
DEFINE_DOUBLE(8, 16)
DEFINE_DOUBLE(3, 6)
DEFINE_DOUBLE(6, 12)
DEFINE_DOUBLE(5, 10)
#undef DEFINE_DOUBLE

#if LANES > 2
/* Lane i of two vectors, within their four lanes: the first or the last two lanes of both in turn, and the first or the
 * last pair of both. */
#define LANE(i)       ((i) % 4)
#define OTHER(i)      ((i)-LANE(i) + LANES)
#define TURN_FIRST(i) (LANE(i) / 2 + (LANE(i) % 2 ? OTHER(i) : (i)-LANE(i)))
#define TURN_LAST(i)  (TURN_FIRST(i) + 2)
#define PAIR_FIRST(i) (LANE(i) % 2 + (LANE(i) / 2 ? OTHER(i) : (i)-LANE(i)))
#define PAIR_LAST(i)  (PAIR_FIRST(i) + 2)
/* Lane i of two vectors that exchange every second group of STEP lanes. */
#define EXCHANGE_FIRST(i) ((i) / STEP % 2 ? LANES + (i)-STEP : (i))
#define EXCHANGE_LAST(i)  ((i) / STEP % 2 ? LANES + (i) : (i) + STEP)
#define EXCHANGE(first, second)                                                                                        \
    do {                                                                                                               \
        const NAME(vector) low = __builtin_shufflevector(first, second, EACH_LANE(EXCHANGE_FIRST));                    \
        (second) = __builtin_shufflevector(first, second, EACH_LANE(EXCHANGE_LAST));                                   \
        (first) = low;                                                                                                 \
    } while (0)
#endif

/* Transposes a square block of vectors: within blocks of 4 x 4, where shuffles are cheap, then whole blocks. */
ALWAYS_INLINE void NAME(transpose)(NAME(vector) block[LANES])
{
#if LANES == 2
    NAME(interleave_2)(block, block);
#else
    UNROLL
    for (int i = 0; i < LANES; i += 4) {
        const NAME(vector) a = __builtin_shufflevector(block[i], block[i + 1], EACH_LANE(TURN_FIRST));
        const NAME(vector) b = __builtin_shufflevector(block[i], block[i + 1], EACH_LANE(TURN_LAST));
        const NAME(vector) c = __builtin_shufflevector(block[i + 2], block[i + 3], EACH_LANE(TURN_FIRST));
        const NAME(vector) d = __builtin_shufflevector(block[i + 2], block[i + 3], EACH_LANE(TURN_LAST));
        block[i] = __builtin_shufflevector(a, c, EACH_LANE(PAIR_FIRST));
        block[i + 1] = __builtin_shufflevector(a, c, EACH_LANE(PAIR_LAST));
        block[i + 2] = __builtin_shufflevector(b, d, EACH_LANE(PAIR_FIRST));
        block[i + 3] = __builtin_shufflevector(b, d, EACH_LANE(PAIR_LAST));
    }
#if LANES > 4
#define STEP 4
    UNROLL
    for (int i = 0; i < LANES; i++)
        if (i / STEP % 2 == 0)
            EXCHANGE(block[i], block[i + STEP]);
#undef STEP
#endif
#if LANES > 8
#define STEP 8
    UNROLL
    for (int i = 0; i < STEP; i++)
        EXCHANGE(block[i], block[i + STEP]);
#undef STEP
#endif
#endif
}
#if LANES > 2
#undef LANE
#undef OTHER
#undef TURN_FIRST
#undef TURN_LAST
#undef PAIR_FIRST
#undef PAIR_LAST
#undef EXCHANGE_FIRST
#undef EXCHANGE_LAST
#undef EXCHANGE
#endif
#else
ALWAYS_INLINE NAME(vector) NAME(every_second)(NAME(vector) first, NAME(vector) second, const bool odd)
{
    NAME(vector) found = {0};
    for (int i = 0; i < LANES; i++)
        found[i] = i < LANES / 2 ? first[2 * i + odd] : second[2 * i + odd - LANES];
    return found;
}

ALWAYS_INLINE void NAME(transpose)(NAME(vector) block[LANES])
{
    NAME(vector) in[LANES];
    memcpy(in, block, sizeof in);
    NAME(interleave_any)(block, in, LANES);
}
#endif /* HAVE_SHUFFLE */
#undef EACH_LANE

/* Callers pass a constant n wherever that is worth it. */
ALWAYS_INLINE void NAME(interleave)(NAME(vector) * out, const NAME(vector) * in, const int n)
{
    switch (n) {
    case 1: out[0] = in[0]; return;
#if HAVE_SHUFFLE
    case 2: NAME(interleave_2)(out, in); return;
    case 3: NAME(interleave_3)(out, in); return;
    case 4: NAME(interleave_4)(out, in); return;
    case 5: NAME(interleave_5)(out, in); return;
    case 6: NAME(interleave_6)(out, in); return;
    case 8: NAME(interleave_8)(out, in); return;
    case 10: NAME(interleave_10)(out, in); return;
    case 12: NAME(interleave_12)(out, in); return;
    case 16: NAME(interleave_16)(out, in); return;
#endif
    default: NAME(interleave_any)(out, in, n);
    }
}

/* Copies the first count of LANES elements. */
ALWAYS_INLINE void NAME(copy_lanes)(REAL *to, const REAL *from, int64_t count)
{
    if (count == LANES)
        memcpy(to, from, LANES * sizeof(REAL));
    else
        copy_short(to, from, (size_t)count * sizeof(REAL), LANES * sizeof(REAL));
}
