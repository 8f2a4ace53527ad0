/* The version of these headers. tconv_version() tells the version of the library that is linked. */
#ifndef TCONV_VERSION_H
#define TCONV_VERSION_H

#define TCONV_VERSION_MAJOR  0
#define TCONV_VERSION_MINOR  2
#define TCONV_VERSION_PATCH  0
#define TCONV_VERSION_STRING "0.2.0"

#endif
