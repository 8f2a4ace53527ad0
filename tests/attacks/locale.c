/*
 * In a locale that writes 0,5 the library's text (verbose lines, descriptions) and the program's output for machines
 * are the same as in "C". The test makes the locale where the machine does not have it.
 *
 *     attack_locale PROGRAM DIRECTORY
 *
 * DIRECTORY is where the locale is made.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attack_layer.h"

#define SECONDS 20
#define NAME    "de_DE.UTF-8"

/* A child that calls setlocale, as a program for users does. All its output is the library's but for a line before each
 * part; the parent removes times. */
static int child(void)
{
    static attack_layer layer;
    static char text[1 << 16];
    tconv_plan *plan = NULL;
    const char *locale = setlocale(LC_ALL, "");
    EXPECT(locale != NULL, "the locale cannot be set");
    fprintf(stderr, "decimal point %s\n", localeconv()->decimal_point);
    attack_layer_init(&layer, ATTACK_SMALL);
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, NULL, "with a decimal comma");
    EXPECT(tconv_plan_create(&layer.desc, NULL, &plan, NULL) == TCONV_SUCCESS, "no plan");
    EXPECT(tconv_plan_describe(plan, text, sizeof text, NULL) == TCONV_SUCCESS, "plan_describe fails");
    fprintf(stderr, "%s\n", text);
    tconv_plan_destroy(plan);
    for (int format = TCONV_TEXT_PLAIN; format <= TCONV_TEXT_JSON; format++) {
        EXPECT(tconv_system_info((tconv_text_format)format, text, sizeof text, NULL) == TCONV_SUCCESS, "info fails");
        fputs(text, stderr);
    }
    attack_layer_release(&layer);
    return attack_end();
}

/* Replaces each run of digits by one 0, and several spaces by one, so that times are alike in columns too. */
static void without_numbers(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        bool digit = *from >= '0' && *from <= '9';
        if (to > text && ((digit && to[-1] == '0') || (*from == ' ' && to[-1] == ' ')))
            continue;
        *to++ = digit ? '0' : *from;
    }
    *to = '\0';
}

static void remove_line(char *text, const char *start)
{
    char *line = strstr(text, start), *end = line != NULL ? strchr(line, '\n') : NULL;
    if (end != NULL)
        memmove(line, end + 1, strlen(end + 1) + 1);
}

static void run(const char *const *arguments, const char *locale, const char *directory, char *output, size_t capacity)
{
    char path[4096];
    snprintf(path, sizeof path, "LOCPATH=%s", directory);
    const char *settings[] = {locale, path, "TCONV_VERBOSE=2", NULL};
    attack_program program = {.arguments = arguments, .settings = settings, .seconds = SECONDS};
    attack_expect_success(attack_run(&program, output, capacity), arguments[0]);
}

static void compare(const char *what, const char *const *arguments, const char *directory, bool library)
{
    static char plain[1 << 17], comma[1 << 17];
    run(arguments, "LC_ALL=C", directory, plain, sizeof plain);
    run(arguments, "LC_ALL=" NAME, directory, comma, sizeof comma);
    if (library) {
        EXPECT(strstr(plain, "decimal point .\n") != NULL, "%s: C has another decimal point", what);
        EXPECT(strstr(comma, "decimal point ,\n") != NULL, "%s: the locale is not in force", what);
        EXPECT(strstr(comma, "tconv,execute") != NULL, "%s: no verbose line", what);
        remove_line(plain, "decimal point");
        remove_line(comma, "decimal point");
    }
    without_numbers(plain);
    without_numbers(comma);
    size_t same = 0;
    while (plain[same] != '\0' && plain[same] == comma[same])
        same++;
    size_t from = same < 30 ? 0 : same - 30;
    EXPECT(plain[same] == comma[same], "%s: \"%.60s\" in C, \"%.60s\" in " NAME, what, plain + from, comma + from);
}

/* Makes the locale in directory; false where there is neither localedef nor the locale's source. */
static bool make_locale(const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/" NAME, directory);
    if (access(path, R_OK) == 0)
        return true;
    mkdir(directory, 0755);
    const char *arguments[] = {"/usr/bin/localedef", "-i", "de_DE", "-f", "UTF-8", path, NULL};
    const attack_program program = {.arguments = arguments, .seconds = SECONDS};
    static char output[1024];
    attack_outcome outcome = attack_run(&program, output, sizeof output);
    return outcome.signal == 0 && outcome.code <= 1 && access(path, R_OK) == 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "child") == 0)
        return child();
    if (argc != 3) {
        printf("usage: %s PROGRAM DIRECTORY\n", argv[0]);
        return 2;
    }
    if (!make_locale(argv[2])) {
        attack_skip("this needs localedef and the source of de_DE (package locales)");
        return attack_end();
    }
    compare("the library", (const char *const[]){argv[0], "child", NULL}, argv[2], true);
    compare("tconv info", (const char *const[]){argv[1], "info", "--json", NULL}, argv[2], false);
    compare("tconv bench",
            (const char *const[]){argv[1], "bench", "--backend", "cpu", "--threads", "1", "--repeat", "1", "--problem",
                                  "n=1 ci=2 h=3 w=4 co=3 k=2", NULL},
            argv[2], false);
    return attack_end();
}
