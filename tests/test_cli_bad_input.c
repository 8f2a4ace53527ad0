/* Bad input to the tconv program gives exit code 2, the option, its value and the rule on stderr, and no output
 * file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/npy_file.h"
#include "support/program.h"

TestSuite(cli_bad_input, .init = enter_scratch, .fini = leave_scratch);

#define NAME_64   "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
#define LONG_NAME NAME_64 NAME_64 NAME_64 NAME_64 /* 256 bytes, one more than file systems take */

/* Bad command lines. Each of `run` follows a good one and spoils it, because the last value of an option counts. */
static const struct {
    const char *arguments[8];
    const char *names; /* the option and its value */
    const char *rule;
} bad_inputs[] = {
    {{"run", "--stride", "0"}, "--stride 0", "must be at least 1"},
    {{"run", "--stride", "1,0"}, "--stride 1,0", "must be at least 1"},
    {{"run", "--stride", "2x2"}, "--stride 2x2", "must be A|H,W|D,H,W, whole numbers"},
    {{"run", "--stride", "1,2,3"}, "--stride 1,2,3", "must be 1 or 2 numbers for files of 2 axes"},
    {{"run", "--stride", "1,2,3,4"}, "--stride 1,2,3,4", "must be A|H,W"},
    {{"run", "--stride", ""}, "--stride", "must be A|H,W"},
    {{"run", "--stride", "99999999999999999999"}, "--stride 99999999999999999999", "below 2^63"},
    {{"run", "--padding", "-1"}, "--padding -1", "must be at least 0"},
    {{"run", "--padding", "1,2,3"}, "--padding 1,2,3", "not 3 numbers"},
    {{"run", "--padding", "1,2,3,4,5"}, "--padding 1,2,3,4,5", "must be 1, 2 or 4 numbers"},
    {{"run", "--padding", "1,2,3,4,5,6,7"}, "--padding 1,2,3,4,5,6,7", "TOP,LEFT,BOTTOM,RIGHT"},
    {{"run", "--padding", "7"}, "--padding 7", "out_h"},
    {{"run", "--output-padding", "1"}, "--output-padding 1", "must be smaller than stride or dilation"},
    {{"run", "--dilation", "0"}, "--dilation 0", "must be at least 1"},
    {{"run", "--dilation", "1,"}, "--dilation 1,", "whole numbers"},
    {{"run", "--dilation", "9223372036854775807"}, "--dilation 9223372036854775807", "out_h"},
    {{"run", "--groups", "0"}, "--groups 0", "must be at least 1"},
    {{"run", "--groups", "3"}, "--groups 3", "must divide the input channels, 2"},
    {{"run", "--groups", "two"}, "--groups two", "must be a whole number"},
    {{"run", "--dtype", "f128"}, "--dtype f128", "must be f32, f64, f16 or bf16"},
    {{"run", "--math", "fast"}, "--math fast", "must be default, strict or tf32"},
    {{"bench", "--op", "backward"}, "--op backward", "must be forward, backward_data or backward_weights"},
    {{"verify", "--op", "backward"}, "--op backward", "must be forward, backward_data, backward_weights or all"},
    {{"run", "--layout", "chwn"}, "--layout chwn", "must be nchw or nhwc"},
    {{"run", "--weight-layout", "oihw"}, "--weight-layout oihw", "must be iohw, ihwo or hwoi"},
    {{"run", "--backend", "gpu"}, "--backend gpu", "must be auto, cpu or cuda"},
    {{"run", "--isa", "sse9"}, "--isa sse9", "must be default, generic, avx2, avx512, neon, avx512_bf16 or amx"},
    {{"run", "--threads", "0"}, "--threads 0", "must be from 1 to 65536"},
    {{"run", "--threads", "1e3"}, "--threads 1e3", "must be a whole number"},
    {{"run", "--threads", "0x10"}, "--threads 0x10", "must be a whole number"},
    {{"run", "--threads", " 4"}, "--threads  4", "must be a whole number"},
    {{"run", "--threads", "+4"}, "--threads +4", "must be a whole number"},
    {{"run", "--threads", "4 "}, "--threads 4 ", "must be a whole number"},
    {{"run", "--threads", "-9223372036854775809"}, "--threads -9223372036854775809", "must be a whole number"},
    {{"run", "--threads", "65537"}, "--threads 65537", "must be from 1 to 65536"},
    {{"run", "--implementation", "cpu_magic"}, "--implementation cpu_magic", "tconv_implementation_name lists"},
    {{"run", "--input", "absent.npy"}, "--input absent.npy", "cannot be opened"},
    {{"run", "--input", ""}, "--input", "must not be empty"},
    {{"run", "--input", "empty.npy"}, "--input empty.npy", "is no .npy file"},
    {{"run", "--input", "text.npy"}, "--input text.npy", "is no .npy file"},
    {{"run", "--input", "version3.npy"}, "--input version3.npy", "has .npy version 3.0: must be 1.0 or 2.0"},
    {{"run", "--input", "header_cut.npy"}, "--input header_cut.npy", "is truncated in its header"},
    {{"run", "--input", "header_huge.npy"}, "--input header_huge.npy", "must be at most 65535"},
    {{"run", "--input", "no_dictionary.npy"}, "--input no_dictionary.npy", "must be a dictionary"},
    {{"run", "--input", "no_shape.npy"}, "--input no_shape.npy", "the keys must be descr, fortran_order and shape"},
    {{"run", "--input", "twice.npy"}, "--input twice.npy", "each once"},
    {{"run", "--input", "after.npy"}, "--input after.npy", "text after the dictionary"},
    {{"run", "--input", "fortran.npy"}, "--input fortran.npy", "is in Fortran order: must be in C order"},
    {{"run", "--input", "big_endian.npy"}, "--input big_endian.npy", "the big-endian dtype '>f4'"},
    {{"run", "--input", "integers.npy"}, "--input integers.npy", "must be '<f2', '<f4' or '<f8'"},
    {{"run", "--input", "negative.npy"}, "--input negative.npy", "must be a whole number"},
    {{"run", "--input", "overflow.npy"}, "--input overflow.npy", "more elements than fit in 63 bits"},
    {{"run", "--input", "lie.npy"}, "--input lie.npy", "is truncated: its shape takes 4611686018427387904 bytes"},
    {{"run", "--input", "truncated.npy"}, "--input truncated.npy", "is truncated: its shape takes 96 bytes"},
    {{"run", "--input", "trailing.npy"}, "--input trailing.npy", "has trailing data"},
    {{"run", "--input", "rank2.npy"}, "--input rank2.npy", "has shape (3, 8): must be (n, c, h, w) or (c, h, w)"},
    {{"run", "--input", "rank5.npy"}, "--input rank5.npy", "(1, 1, 2, 3, 4): must be (n, c, h, w) or (c, h, w)"},
    {{"run", "--input", "rank6.npy"}, "--input rank6.npy", "has more than 5 axes"},
    {{"run", "--weight", "rank5.npy", "--input", "b.npy"}, "--input b.npy", "must be (n, c, d, h, w) or (c, d, h, w)"},
    {{"run", "--weight", "rank6.npy"}, "--weight rank6.npy", "has more than 5 axes"},
    {{"run", "--input", "flat.npy"}, "--input flat.npy", "in_h = 0: must be at least 1"},
    {{"run", "--input", "."}, "--input .", "cannot be"},
    {{"run", "--weight", "x.npy"}, "--weight x.npy", "has 1 input channels: must have as many as --input, 2"},
    {{"run", "--weight", "b.npy"}, "--weight b.npy", "has shape (3,): must be (in_channels"},
    {{"run", "--bias", "x.npy"}, "--bias x.npy", "must be (3,), one for each output channel"},
    {{"run", "--op", "sideways"}, "--op sideways", "must be forward, backward_data or backward_weights"},
    {{"run", "--op", "backward_data"}, "--input x.npy", "is not read by the operation of --op"},
    {{"run", "--diff-output", "x.npy"}, "--diff-output x.npy", "is not read by the operation of --op"},
    {{"run", "--bias-output", "y.npy"}, "--bias-output y.npy", "is not written by the operation of --op"},
    {{"run", "--output", "absent/y.npy"}, "--output absent/y.npy", "cannot be made"},
    {{"run", "--output", LONG_NAME}, "--output nnnn", "cannot be made: File name too long"},
    {{"run", "--output", "x.npy/y.npy"}, "--output x.npy/y.npy", "cannot be made: Not a directory"},
    {{"run", "--output", "."}, "--output .", "cannot be made"},
    {{"run", "--frobnicate"}, "--frobnicate", "is no option of tconv run"},
    {{"run", "-ab"}, "error: -ab: ", "is no option of tconv run"},
    {{"run", "-a"}, "error: -a: ", "is no option of tconv run"},
    {{"run", "-\xc3\xa4"}, "error: -\xc3\xa4: ", "is no option of tconv run"},
    {{"run", "-!"}, "error: -!: ", "is no option of tconv run"},
    {{"info", "--json", "-ab"}, "error: -ab: ", "is no option of tconv info"},
    {{"info", "-ab"}, "error: -ab: ", "is no option of tconv info"},
    {{"bench", "--ba", "1"}, "error: --ba: ", "is no option of tconv bench"},
    {{"run", "--stride"}, "--stride", "needs a value"},
    {{"run", "x.npy"}, "x.npy", "takes options only"},
    {{"info", "--json=yes"}, "--json=yes", "takes no value"},
    {{"verify", "--layers", "-1"}, "--layers -1", "must be from 0 to"},
    {{"verify", "--seconds", "3"}, "--seconds 3", "is for --by-class"},
    {{"verify", "--by-class", "--seconds", "0"}, "--seconds 0", "must be from 1 to"},
    {{"verify", "--seed", "x"}, "--seed x", "must be a whole number from 0 to 2^64 - 1"},
    {{"verify", "--seed", "-1"}, "--seed -1", "must be a whole number from 0 to 2^64 - 1"},
    {{"verify", "--seed", "0x"}, "--seed 0x", "must be a whole number from 0 to 2^64 - 1"},
    {{"verify", "--seed", "18446744073709551616"}, "--seed 18446744073709551616", "must be a whole number"},
    {{"verify", "--implementation", "cpu_magic"}, "--implementation cpu_magic", "must be one that tconv info lists"},
    {{"bench", "--case", "nowhere"}, "--case nowhere", "must be a name in the built-in workloads"},
    {{"bench", "--workloads", "absent.csv"}, "--workloads absent.csv", "cannot be opened"},
    {{"bench", "--workloads", "header.csv"}, "--workloads header.csv", "line 1: the header must be name,N,"},
    {{"bench", "--workloads", "columns.csv"}, "--workloads columns.csv", "line 2: there must be 18 columns"},
    {{"bench", "--workloads", "columns_3d.csv"}, "--workloads columns_3d.csv", "line 2: there must be 24 columns"},
    {{"bench", "--workloads", "zero_byte.csv"}, "--workloads zero_byte.csv", "line 3: there is a zero byte"},
    {{"bench", "--workloads", "utf16.csv"}, "--workloads utf16.csv", "line 1: there is a zero byte"},
    {{"bench", "--workloads", "twice.csv"}, "--workloads twice.csv", "line 3: the name appears twice"},
    {{"bench", "--workloads", "escape.csv"}, "--workloads escape.csv", "line 2: the name must be UTF-8 without quotes"},
    {{"bench", "--workloads", "latin1.csv"}, "--workloads latin1.csv", "line 2: the name must be UTF-8 without quotes"},
    {{"bench", "--workloads", "long.csv"}, "--workloads long.csv", "line 2: the line is longer than 511 characters"},
    {{"bench", "--workloads", "/dev/zero"}, "--workloads /dev/zero", "is larger than 16 MiB"},
    {{"bench", "--workloads", "/dev/null"}, "--workloads /dev/null", "has no layer"},
    {{"bench", "--workloads", "."}, "--workloads .", "cannot be read"},
    {{"bench", "--workloads", "invalid.csv"}, "--workloads invalid.csv", "bad: stride_h = 0: must be at least 1"},
    {{"bench", "--problem", "ci=2 h=3 w=4"}, "--problem \"ci=2 h=3 w=4\"", "co= (output channels) is missing"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 x=1"}, "--problem", "\"x=1\" is none of"},
    {{"bench", "--problem", "ci=2 z=0 h=3 w=4 co=5 k=2"}, "--problem", "in_d = 0: must be at least 1"},
    {{"bench", "--problem", "ci=2 z=2 h=3 w=4 co=5 k=2x3"}, "--problem", "k takes 1 or 3 numbers beside z=, not 2"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 p=1x2x3x4 z=2"}, "--problem", "p takes 1, 3 or 6 numbers beside z="},
    {{"bench", "--problem", "ci=2 z=2 h=3 w=4 co=5 k=2 ss=1x2x3x4"},
     "--problem",
     "ss takes 5 numbers beside z=, not 4"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2x2x2"}, "--problem", "\"k=2x2x2\" has more than 2 numbers"},
    {{"bench", "--problem", "ci=2 z=2 h=3 w=4 co=5 k=2 s=1x0x1"}, "--problem", "stride_h = 0: must be at least 1"},
    {{"bench", "--problem", "ci=2 z=2 h=3 w=4 co=5 k=2 p=4x0x0"}, "--problem", "out_d = "},
    {{"bench", "--problem", "ci=2 z=2 h=3 w=4 co=5 k=2 st=1"}, "--problem", "in_d = 2: must be 1 in a stream"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 ci=2"}, "--problem", "ci= appears twice"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2x"}, "--problem", "\"k=2x\""},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 p=1x2x3"}, "--problem", "p takes 1, 2 or 4 numbers, not 3"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 s=0"}, "--problem", "stride_h = 0: must be at least 1"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 b=2"}, "--problem", "b=2 must be 0 or 1"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 acc=2"}, "--problem", "acc=2 must be 0 or 1"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 post=relu"}, "--problem", "post-op \"relu\" is none of add_channel"},
    {{"bench", "--problem", "ci=2 h=3 w=4 co=5 k=2 post=clamp:6:0"}, "--problem", "post[0].beta = 0: must be at least"},
    {{"plan", "--problem", "ci=2 h=3 w=4 co=5 k=2 as=1x1x1x1"}, "--problem", "no post-op has an addend"},
    {{"bench", "--post", "tanh:1"}, "--post tanh:1", "has more than 0 numbers"},
    {{"bench", "--post", "random"}, "--post random", "is none of add_channel"},
    {{"bench", "--post", "tanh,clamp:6:0"}, "--post tanh,clamp:6:0", "post[1].beta = 0: must be at least alpha"},
    {{"verify", "--post", "add_tensor,add_tensor"}, "--post add_tensor,add_tensor", "must be no second addend"},
    {{"verify", "--post", "tanh", "--op", "backward_data"}, "--post tanh", "is for forward, not for gradients"},
    {{"bench", "--batch-budget", "0"}, "--batch-budget 0", "must be a number above 0"},
    {{"bench", "--batch-budget", "-1"}, "--batch-budget -1", "must be a number above 0"},
    {{"bench", "--batch-budget", " 1"}, "--batch-budget  1", "must be a number above 0"},
    {{"bench", "--batch-budget", "1,5"}, "--batch-budget 1,5", "must be a number above 0"},
    {{"bench", "--batch-budget", "1e400"}, "--batch-budget 1e400", "must be a number above 0"},
    {{"bench", "--batch-budget", "inf"}, "--batch-budget inf", "must be a number above 0"},
    {{"bench", "--batch-budget", "nan"}, "--batch-budget nan", "must be a number above 0"},
    {{"bench", "--repeat", "0"}, "--repeat 0", "must be from 1 to 5000"},
    {{"bench", "--json"}, "--json", "needs a value"},
    {{"bench", "--case", "dcgan_0", "--json", "absent/f.json"}, "--json absent/f.json", "cannot be made"},
};
#define BAD_INPUT_COUNT (sizeof bad_inputs / sizeof bad_inputs[0])

#define HEAD(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }\n"

#define COLUMNS "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias\n"
#define NUMBERS ",1,2,3,4,5,1,1,1,1,0,0,0,0,1,1,1,0\n"

static void write_bad_workloads(void)
{
    static const char zero_byte[] = COLUMNS "a" NUMBERS "b,1\0,2\nc" NUMBERS, twice[] = COLUMNS "a" NUMBERS "a" NUMBERS,
                      escape[] = COLUMNS "\033[2Ja" NUMBERS, latin1[] = COLUMNS "\xe4" NUMBERS,
                      utf16[] = "\xff\xfen\0a\0m\0e\0";
    write_whole("zero_byte.csv", zero_byte, sizeof zero_byte - 1);
    write_whole("twice.csv", twice, sizeof twice - 1);
    write_whole("escape.csv", escape, sizeof escape - 1);
    write_whole("latin1.csv", latin1, sizeof latin1 - 1);
    write_whole("utf16.csv", utf16, sizeof utf16 - 1);
    const size_t size = 10 << 20; /* one line of 10 MiB */
    char *line = malloc(size);
    cr_assert_not_null(line);
    memset(line, '1', size);
    memcpy(line, COLUMNS, sizeof COLUMNS - 1);
    write_whole("long.csv", line, size);
    free(line);
}

static void write_bad_files(void)
{
    static const struct {
        const char *path;
        int major;
        const char *header;
        size_t bytes;
    } files[] = {
        {"version3.npy", 3, HEAD("<f4", "False", "(1, 2, 3, 4)"), 96},
        {"no_dictionary.npy", 1, "[1, 2, 3]\n", 96},
        {"no_shape.npy", 1, "{'descr': '<f4', 'fortran_order': False, }\n", 96},
        {"twice.npy", 1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }\n", 96},
        {"after.npy", 1, HEAD("<f4", "False", "(1, 2, 3, 4)") "x\n", 96},
        {"fortran.npy", 1, HEAD("<f4", "True", "(1, 2, 3, 4)"), 96},
        {"big_endian.npy", 1, HEAD(">f4", "False", "(1, 2, 3, 4)"), 96},
        {"integers.npy", 1, HEAD("<i4", "False", "(1, 2, 3, 4)"), 96},
        {"negative.npy", 1, HEAD("<f4", "False", "(1, -2, 3, 4)"), 96},
        {"overflow.npy", 1, HEAD("<f4", "False", "(4294967296, 4294967296, 3, 4)"), 96},
        {"lie.npy", 2, HEAD("<f4", "False", "(1073741824, 1073741824, 1, 1)"), 96},
        {"truncated.npy", 1, HEAD("<f4", "False", "(1, 2, 3, 4)"), 95},
        {"trailing.npy", 1, HEAD("<f4", "False", "(1, 2, 3, 4)"), 97},
        {"rank2.npy", 1, HEAD("<f4", "False", "(3, 8)"), 96},
        {"rank5.npy", 1, HEAD("<f4", "False", "(1, 1, 2, 3, 4)"), 96},
        {"rank6.npy", 1, HEAD("<f4", "False", "(1, 1, 1, 2, 3, 4)"), 96},
        {"flat.npy", 1, HEAD("<f4", "False", "(1, 2, 0, 4)"), 0},
    };
    static const char text[] = "1 2 3\n", cut[] = "\x93NUMPY\x01\x00\x76\x00{'descr'",
                      huge[] = "\x93NUMPY\x02\x00\xff\xff\xff\x7f{'descr'";
    static const char header[] = "name,N\nx,1\n",
                      columns[] = "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias\nx,1,2,3\n",
                      columns_3d[] = "name,N,Cin,D,H,W,Cout,kd,kh,kw,sd,sh,sw,pd,ph,pw,opd,oph,opw,dd,dh,dw,g,bias\n"
                                     "x,1,2,3,4,5,1,1,1,1,0,0,0,0,1,1,1,0\n",
                      invalid[] = "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias\n"
                                  "bad,1,2,3,4,5,1,1,0,1,0,0,0,0,1,1,1,0\n";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        write_npy(files[i].path, files[i].major, files[i].header, npy_numbers, files[i].bytes);
    write_whole("empty.npy", "", 0);
    write_whole("text.npy", text, sizeof text - 1);
    write_whole("header_cut.npy", cut, sizeof cut - 1);
    write_whole("header_huge.npy", huge, sizeof huge - 1);
    write_whole("header.csv", header, sizeof header - 1);
    write_whole("columns.csv", columns, sizeof columns - 1);
    write_whole("columns_3d.csv", columns_3d, sizeof columns_3d - 1);
    write_whole("invalid.csv", invalid, sizeof invalid - 1);
    write_bad_workloads();
}

Test(cli_bad_input, is_refused_by_name_with_code_2_and_leaves_no_file)
{
    static const char *const good_run[] = {"--input", "x.npy", "--weight", "w.npy", "--output", "y.npy"};
    write_layer();
    write_bad_files();
    for (size_t i = 0; i < BAD_INPUT_COUNT; i++) {
        const char *arguments[20] = {bad_inputs[i].arguments[0]};
        size_t count = 1;
        for (size_t j = 0; strcmp(arguments[0], "run") == 0 && j < sizeof good_run / sizeof good_run[0]; j++)
            arguments[count++] = good_run[j];
        for (size_t j = 1; j < 8 && bad_inputs[i].arguments[j] != NULL; j++)
            arguments[count++] = bad_inputs[i].arguments[j];
        struct program_result result = run_program(arguments, NULL);
        expect_code(&result, 2, bad_inputs[i].names);
        cr_assert_eq(strncmp(result.error, "tconv: error: ", 14), 0, "%s", result.error);
        expect_text(result.error, bad_inputs[i].names, bad_inputs[i].names);
        expect_text(result.error, bad_inputs[i].rule, bad_inputs[i].names);
        cr_assert(!exists_like("y.npy"), "%s left an output file", bad_inputs[i].names);
        release_result(&result);
    }
}

Test(cli_bad_input, required_options_and_commands_are_missed)
{
    static const struct {
        const char *arguments[8];
        const char *text;
    } rows[] = {
        {{NULL}, "a command is missing"},
        {{"jog"}, "jog: must be one of the commands info, plan, run, verify and bench"},
        {{"run"}, "--input: is required"},
        {{"run", "--input", "x.npy"}, "--weight: is required"},
        {{"run", "--input", "x.npy", "--weight", "w.npy"}, "--output: is required"},
        {{"run", "--op", "backward_data", "--weight", "w.npy", "--output", "y.npy"}, "--diff-output: is required"},
    };
    write_layer();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct program_result result = run_program(rows[i].arguments, NULL);
        expect_code(&result, 2, rows[i].text);
        expect_text(result.error, rows[i].text, rows[i].text);
        release_result(&result);
    }
}

/* x.npy is (1, 2, 3, 4), w.npy (2, 3, 2, 2). */
Test(cli_bad_input, a_gradient_of_another_output_is_refused)
{
    static const struct {
        const char *arguments[14];
        const char *text;
    } rows[] = {
        {{"run", "--op", "backward_weights", "--input", "x.npy", "--diff-output", "x.npy", "--output", "y.npy",
          "--stride", "2"},
         "has shape (1, 2, 3, 4): must be (1, 2, 5, 7), the output of this layer"},
        {{"run", "--op", "backward_weights", "--input", "x.npy", "--diff-output", "w.npy", "--output", "y.npy"},
         "has shape (2, 3, 2, 2): must be (1, 3, 3, 4), the output of this layer"},
        {{"run", "--op", "backward_data", "--weight", "w.npy", "--diff-output", "x.npy", "--output", "y.npy"},
         "has shape (1, 2, 3, 4): must be (1, 3, 3, 4), the output of this layer"},
        {{"run", "--op", "backward_data", "--weight", "w.npy", "--diff-output", "x.npy", "--output", "y.npy",
          "--padding", "9223372036854775807"},
         "--padding 9223372036854775807"},
    };
    write_layer();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct program_result result = run_program(rows[i].arguments, NULL);
        expect_code(&result, 2, rows[i].text);
        expect_text(result.error, rows[i].text, rows[i].text);
        cr_assert(!exists_like("y.npy"));
        release_result(&result);
    }
}

Test(cli_bad_input, a_bad_environment_variable_is_named)
{
    write_layer();
    const char *const run[] = {"run", "--input", "x.npy", "--weight", "w.npy", "--output", "y.npy", NULL};
    const char *const bench[] = {"bench", "--problem", "ci=1 h=1 w=1 co=1 k=1", NULL};
    struct program_result result = run_program(run, (const char *const[]){"TCONV_BACKEND=gpu", NULL});
    expect_code(&result, 2, "run");
    expect_text(result.error, "TCONV_BACKEND", "run");
    cr_assert(!exists_like("y.npy"));
    release_result(&result);
    result = run_program(bench, (const char *const[]){"TCONV_NUM_THREADS=many", NULL});
    expect_code(&result, 2, "bench");
    expect_text(result.error, "TCONV_NUM_THREADS", "bench");
    release_result(&result);
    result = run_program((const char *const[]){"verify", "--layers", "1", NULL},
                         (const char *const[]){"TCONV_MATH=fast", NULL});
    expect_code(&result, 2, "verify");
    expect_text(result.error, "TCONV_MATH = fast", "verify");
    release_result(&result);
}

Test(cli_bad_input, an_old_output_survives_a_failure)
{
    write_layer();
    write_whole("y.npy", "old", 3);
    struct program_result result =
        PROGRAM("run", "--input", "x.npy", "--weight", "w.npy", "--output", "y.npy", "--bias", "w.npy");
    expect_code(&result, 2, "run");
    char *kept = read_whole("y.npy", NULL);
    cr_assert_str_eq(kept, "old");
    free(kept);
    release_result(&result);
}

/* Sixty thousand layers are read in a moment. When names were compared each with each, it took 17 s. */
Test(cli_bad_input, a_long_file_of_workloads_is_read_quickly)
{
    FILE *file = fopen("many.csv", "wb");
    cr_assert_not_null(file);
    fputs("\xef\xbb\xbf" COLUMNS, file); /* spreadsheets write a byte order mark and CRLF */
    for (int i = 0; i < 60000; i++)
        fprintf(file, "layer_%d,1,2,3,4,5,1,1,1,1,0,0,0,0,1,1,1,0\r\n", i);
    cr_assert_eq(fclose(file), 0);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    struct program_result result = PROGRAM("bench", "--workloads", "many.csv", "--case", "layer_60000");
    clock_gettime(CLOCK_MONOTONIC, &end);
    expect_code(&result, 2, "bench");
    expect_text(result.error, "--case layer_60000: must be a name in many.csv", "bench");
    const double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    cr_assert(seconds < 5, "%g s", seconds);
    release_result(&result);
    result = PROGRAM("bench", "--workloads", "many.csv", "--case", "layer_59999", "--repeat", "1");
    expect_code(&result, 0, "bench");
    expect_text(result.out, "layer_59999", "bench");
    release_result(&result);
}

Test(cli_bad_input, a_seed_is_decimal_unless_it_begins_with_0x)
{
    static const char *const rows[][2] = {
        {"010", "seed 10,"}, {"0x10", "seed 16,"}, {"18446744073709551615", "seed 18446744073709551615,"}};
    for (size_t i = 0; i < 3; i++) {
        struct program_result result = PROGRAM("verify", "--layers", "0", "--no-corners", "--seed", rows[i][0]);
        expect_code(&result, 0, rows[i][0]);
        expect_text(result.out, rows[i][1], rows[i][0]);
        release_result(&result);
    }
}
