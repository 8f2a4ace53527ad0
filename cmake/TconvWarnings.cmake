# tconv_warnings: the warnings of every C file in the tree, a private interface. Warnings become errors with
# CMAKE_COMPILE_WARNING_AS_ERROR (preset dev).
add_library(tconv_warnings INTERFACE)
target_compile_options(tconv_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
