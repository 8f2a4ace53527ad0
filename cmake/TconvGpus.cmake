# tconv_gpu_architectures(variable): what to build for so that the GPUs of this machine are served, as
# CMAKE_CUDA_ARCHITECTURES has it: "90a-real", or "80-real;90a-real" where there are two kinds. Empty where there is no GPU of
# compute capability 8.0 or newer, or no driver.
#
# As a script, `cmake -P cmake/TconvGpus.cmake` prints the same, for the scripts.

function(tconv_gpu_architectures variable)
  set(architectures "")
  # "9.0" in a line for each GPU, by the driver's tool; "90" by the toolkit's, which containers without the former have.
  find_program(TCONV_NVIDIA_SMI nvidia-smi)
  find_program(TCONV_DEVICE_QUERY __nvcc_device_query HINTS /usr/local/cuda/bin)
  mark_as_advanced(TCONV_NVIDIA_SMI TCONV_DEVICE_QUERY)
  set(found 1)
  if(TCONV_NVIDIA_SMI)
    execute_process(COMMAND ${TCONV_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE text RESULT_VARIABLE found ERROR_QUIET)
  endif()
  if(NOT found EQUAL 0 AND TCONV_DEVICE_QUERY)
    execute_process(COMMAND ${TCONV_DEVICE_QUERY} OUTPUT_VARIABLE text RESULT_VARIABLE found ERROR_QUIET)
  endif()
  if(found EQUAL 0)
    string(REPLACE "." "" text "${text}")
    string(REGEX MATCHALL "[0-9]+" capabilities "${text}")
    foreach(capability IN LISTS capabilities)
      if(capability EQUAL 90) # Hopper's own instructions are in sm_90a alone
        list(APPEND architectures 90a-real)
      elseif(capability GREATER 90)
        list(APPEND architectures 90-virtual) # PTX, which the driver compiles
      elseif(capability GREATER_EQUAL 80)
        list(APPEND architectures 80-real) # runs on every 8.x
      endif()
    endforeach()
  endif()
  list(REMOVE_DUPLICATES architectures)
  set(${variable} "${architectures}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  tconv_gpu_architectures(architectures)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${architectures}")
endif()
