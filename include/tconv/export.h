/* TCONV_API marks what the shared library exports; everything else is built with hidden visibility. */
#ifndef TCONV_EXPORT_H
#define TCONV_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
#define TCONV_API __attribute__((visibility("default")))
#else
#define TCONV_API
#endif

#endif
