# TCONV_SANITIZE: every C file and every link with the sanitizers, each report fatal.
if(TCONV_SANITIZE)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${TCONV_SANITIZE}>
    $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>
    $<$<COMPILE_LANGUAGE:C>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${TCONV_SANITIZE})
endif()

# TCONV_FUZZ: libFuzzer sees which branches an input takes in every C file. The fuzzers' own links bring libFuzzer's main.
if(TCONV_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TCONV_FUZZ=ON needs clang, not ${CMAKE_C_COMPILER_ID}: CMAKE_C_COMPILER=clang")
  endif()
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
