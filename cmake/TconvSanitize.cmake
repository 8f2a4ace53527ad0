# TCONV_SANITIZE: every C file and every link with the sanitizers, each report fatal.
if(TCONV_SANITIZE)
  add_compile_options(
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${TCONV_SANITIZE}>
    $<$<COMPILE_LANGUAGE:C>:-fno-sanitize-recover=all>
    $<$<COMPILE_LANGUAGE:C>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${TCONV_SANITIZE})
endif()
