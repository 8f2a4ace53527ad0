# Turns files into a C source of const arrays, so that a test needs no path to its data:
#     cmake -DOUTPUT=x.c "-DINPUTS=a.csv;a.bin" -P embed.cmake
# gives `const unsigned char a_csv[]; const size_t a_csv_size;` and so on.
set(source "#include <stddef.h>\n\n#include \"embedded.h\"\n")
foreach(input IN LISTS INPUTS)
  get_filename_component(name ${input} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${input} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND source "\nconst unsigned char ${name}[] = {\n${bytes}};\nconst size_t ${name}_size = sizeof ${name};\n")
endforeach()
file(WRITE ${OUTPUT} "${source}")
