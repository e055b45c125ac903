# Functions of the build: warnings, folder libraries, protobuf-c, tests.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Assertions stay in every build: no NDEBUG.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_C_FLAGS_RELEASE "-O3")
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

option(TROUPE_WERROR "Warnings are errors" ON)

add_library(troupe_flags INTERFACE)
target_include_directories(troupe_flags INTERFACE
    ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/proto)
target_compile_definitions(troupe_flags INTERFACE _GNU_SOURCE)
target_compile_options(troupe_flags INTERFACE
    -ffp-contract=off -Wall -Wextra -Wshadow -Wvla -Wunused-result
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>
    $<$<BOOL:${TROUPE_WERROR}>:-Werror>)

# troupe_proto_library(name a.proto...): static library with the generated *.pb-c.[ch].
function(troupe_proto_library library)
    set(out ${CMAKE_BINARY_DIR}/proto)
    file(MAKE_DIRECTORY ${out})
    find_program(PROTOC_C protoc-c REQUIRED)
    foreach(proto IN LISTS ARGN)
        get_filename_component(name ${proto} NAME_WE)
        get_filename_component(dir ${CMAKE_SOURCE_DIR}/${proto} DIRECTORY)
        add_custom_command(
            OUTPUT ${out}/${name}.pb-c.c ${out}/${name}.pb-c.h
            COMMAND ${PROTOC_C} -I${dir} --c_out=${out} ${name}.proto
            DEPENDS ${proto} VERBATIM)
        list(APPEND sources ${out}/${name}.pb-c.c)
        list(APPEND headers ${out}/${name}.pb-c.h)
    endforeach()
    add_library(${library} STATIC ${sources})
    target_include_directories(${library} PUBLIC ${out})
    target_link_libraries(${library} PUBLIC PkgConfig::PROTOBUFC)
    add_custom_target(${library}_headers DEPENDS ${headers})
endfunction()

# troupe_protos(a.proto...): troupe_proto, the messages that the library itself uses.
function(troupe_protos)
    troupe_proto_library(troupe_proto ${ARGN})
endfunction()

# troupe_folder(folder SOURCES ... LINK ...): the static library troupe_<folder> of these files in it;
# a room's is troupe_<folder>_<room>.
function(troupe_folder folder)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
    string(REPLACE / _ name ${folder})
    list(TRANSFORM ARG_SOURCES PREPEND ${folder}/)
    add_library(troupe_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(troupe_${name} PUBLIC ${ARG_LINK} PRIVATE troupe_flags)
    add_dependencies(troupe_${name} troupe_proto_headers)
    set_property(GLOBAL APPEND PROPERTY TROUPE_OBJECTS $<TARGET_OBJECTS:troupe_${name}>)
    list(FILTER ARG_LINK EXCLUDE REGEX "^troupe_")
    set_property(GLOBAL APPEND PROPERTY TROUPE_THIRD_PARTY ${ARG_LINK})
endfunction()

# troupe_nn_kernels(): kernels for instruction sets that are chosen when the program runs.
function(troupe_nn_kernels)
    set(optimize -O3)
    set(wide "")
    if(CMAKE_C_FLAGS MATCHES "-fsanitize=address")
        # Instrumented register tiles take minutes to compile. The kernels are one text (simd.h):
        # the generic and AVX2 forms of it are checked.
        set(optimize -O1)
        set(wide -fno-sanitize=all)
    endif()
    set_source_files_properties(nn/simd_generic.c PROPERTIES COMPILE_OPTIONS ${optimize})
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    target_sources(troupe_nn PRIVATE nn/simd_avx2.c nn/simd_avx512.c nn/simd_bf16.c
        nn/simd_amx.c)
    set_source_files_properties(nn/simd_avx2.c PROPERTIES
        COMPILE_OPTIONS "${optimize};-mavx2;-mfma")
    set_source_files_properties(nn/simd_avx512.c PROPERTIES
        COMPILE_OPTIONS "${optimize};-mavx512f;-mfma;${wide}")
    set(bf16 "${optimize};-mavx512f;-mavx512bw;-mavx512vl;-mavx512bf16;-mfma;${wide}")
    set_source_files_properties(nn/simd_bf16.c PROPERTIES COMPILE_OPTIONS "${bf16}")
    set_source_files_properties(nn/simd_amx.c PROPERTIES
        COMPILE_OPTIONS "${bf16};-mamx-tile;-mamx-bf16")
endfunction()

# What libtroupe_cuda.so does on the host; tests link it with other libraries below.
set(TROUPE_CUDA_HOST nn/cuda/module/blas.c nn/cuda/module/dnn.c nn/cuda/module/gpu.c nn/cuda/module/graph.c
    nn/cuda/module/run.c)

# troupe_cuda_module(): libtroupe_cuda.so, where nvcc is; it needs no driver to be built or opened.
# Code for compute capability 9.0, and for newer and older ones from 8.0 on what drivers compile.
function(troupe_cuda_module)
    find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
    if(NOT NVCC)
        message(STATUS "No nvcc: this build has no GPUs")
        return()
    endif()
    get_filename_component(cuda ${NVCC} DIRECTORY)
    find_path(CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda}/../include NO_DEFAULT_PATH REQUIRED)
    find_library(CUDART_STATIC cudart_static HINTS ${cuda}/../lib64 ${cuda}/../lib REQUIRED)
    # -fmad=false: a GPU rounds as the host does, on which tests run the same text.
    foreach(source nn/cuda/module/kernels.cu agents/kernels_agents.cu learner/kernels_learner.cu)
        get_filename_component(name ${source} NAME_WE)
        set(code ${CMAKE_BINARY_DIR}/cuda_${name}.o)
        list(APPEND codes ${code})
        add_custom_command(OUTPUT ${code}
            COMMAND ${NVCC} -std=c++17 -O3 -fmad=false -Werror all-warnings
                -gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80
                -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics
                -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/include
                -MD -MF ${code}.d -MT ${code} -c ${CMAKE_SOURCE_DIR}/${source} -o ${code}
            DEPENDS ${source} DEPFILE ${code}.d VERBATIM
            COMMENT "Compiling kernels for GPUs")
    endforeach()
    set_source_files_properties(${codes} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_library(troupe_cuda MODULE ${TROUPE_CUDA_HOST} nn/cuda/kernels.c agents/kernels_agents.c
        learner/kernels_learner.c ${codes})
    set_target_properties(troupe_cuda PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(troupe_cuda SYSTEM PRIVATE ${CUDA_INCLUDE})
    target_compile_definitions(troupe_cuda PRIVATE TROUPE_VERSION="${PROJECT_VERSION}")
    target_link_libraries(troupe_cuda PRIVATE troupe_core ${CUDART_STATIC} rt ${CMAKE_DL_LIBS}
        Threads::Threads troupe_flags -Wl,--exclude-libs,ALL)
    if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize") # as libtroupe
        target_link_options(troupe_cuda PRIVATE -Wl,--no-undefined)
    endif()
    install(TARGETS troupe_cuda DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# troupe_fake_cuda(target name suffix sources...): a library of NVIDIA's of tests, as <build>/<target>/lib/<name>.
function(troupe_fake_cuda target name suffix)
    add_library(${target} MODULE ${ARGN} core/alloc.c)
    set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} SUFFIX ${suffix}
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${target}/lib)
    target_include_directories(${target} SYSTEM PRIVATE ${CUDA_INCLUDE})
    target_link_libraries(${target} PRIVATE troupe_flags ${CMAKE_DL_LIBS})
endfunction()

# troupe_test_gpu(): test_gpu and test_dnn, the library's own code with a runtime, a cuBLASLt and a cuDNN of tests.
function(troupe_test_gpu)
    if(NOT TARGET troupe_cuda)
        return()
    endif()
    troupe_fake_cuda(fake_blas libcublasLt .so.13 tests/nn/cuda/fake_blas.c)
    troupe_fake_cuda(fake_nothing libcublasLt .so.13) # a library of that name that has nothing
    troupe_fake_cuda(fake_dnn libcudnn .so.9 tests/nn/cuda/fake_dnn.c)
    troupe_fake_cuda(fake_no_dnn libcudnn .so.9)
    set_source_files_properties(tests/nn/cuda/fake_cuda.c PROPERTIES COMPILE_OPTIONS -fvisibility=default)
    foreach(test gpu dnn)
        troupe_test(nn/cuda/${test} LINK troupe_nn)
        target_sources(test_${test} PRIVATE tests/nn/cuda/fake_cuda.c ${TROUPE_CUDA_HOST} agents/kernels_agents.c
            learner/kernels_learner.c)
        set_target_properties(test_${test} PROPERTIES ENABLE_EXPORTS ON) # libraries put work on its streams
        target_include_directories(test_${test} SYSTEM PRIVATE ${CUDA_INCLUDE})
        target_compile_definitions(test_${test} PRIVATE TROUPE_VERSION="${PROJECT_VERSION}"
            WITH_BLAS="${CMAKE_BINARY_DIR}/fake_blas" WITHOUT_BLAS="${CMAKE_BINARY_DIR}/fake_nothing"
            WITH_DNN="${CMAKE_BINARY_DIR}/fake_dnn" WITHOUT_DNN="${CMAKE_BINARY_DIR}/fake_no_dnn")
        add_dependencies(test_${test} fake_blas fake_nothing fake_dnn fake_no_dnn)
    endforeach()
    if(EXISTS ${CUDA_INCLUDE}/cudnn.h)
        target_sources(test_dnn PRIVATE tests/nn/cuda/dnn_layout.c)
    endif()
    find_library(REAL_DNN NAMES libcudnn.so.9 HINTS ${CUDA_INCLUDE}/../lib64 ${CUDA_INCLUDE}/../lib)
    if(REAL_DNN)
        troupe_fake_cuda(real_dnn libcudnn .so.9 tests/nn/cuda/real_dnn.c)
        target_compile_definitions(real_dnn PRIVATE REAL_DNN_LIBRARY="${REAL_DNN}")
        target_compile_definitions(test_dnn PRIVATE REAL_DNN="${CMAKE_BINARY_DIR}/real_dnn")
        add_dependencies(test_dnn real_dnn)
    endif()
endfunction()

# troupe_test_gpu_nodes(): test_gpu_nodes, and the program that it starts beside a libtroupe_cuda.so whose
# runtime is that of tests.
function(troupe_test_gpu_nodes)
    if(NOT TARGET troupe_cuda)
        return()
    endif()
    add_library(fake_gpus MODULE tests/nn/cuda/fake_gpus.c tests/nn/cuda/fake_cuda.c nn/cuda/kernels.c
        ${TROUPE_CUDA_HOST} agents/kernels_agents.c learner/kernels_learner.c)
    set_target_properties(fake_gpus PROPERTIES PREFIX "" OUTPUT_NAME libtroupe_cuda
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_gpus)
    target_include_directories(fake_gpus SYSTEM PRIVATE ${CUDA_INCLUDE})
    target_compile_definitions(fake_gpus PRIVATE TROUPE_VERSION="${PROJECT_VERSION}")
    target_link_libraries(fake_gpus PRIVATE troupe_core troupe_flags ${CMAKE_DL_LIBS} Threads::Threads
        -Wl,--exclude-libs,ALL)
    troupe_test_program(launch/gpu_program LINK troupe_launch)
    set_target_properties(gpu_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_gpus)
    add_dependencies(gpu_program fake_gpus)
    troupe_test(launch/gpu_nodes TIMEOUT 120 LINK troupe_core)
    troupe_test_starts(gpu_nodes gpu_program)
endfunction()

# troupe_fake_nccl(): an NCCL of tests, and two that cannot be used, each as the library that is
# looked for: under <build>/fake_nccl, fake_nccl_old and fake_nccl_lacking.
function(troupe_fake_nccl)
    foreach(kind "" _OLD _LACKING)
        string(TOLOWER "fake_nccl${kind}" name)
        add_library(${name} MODULE tests/learner/collective/fake_nccl.c)
        set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME libnccl SUFFIX .so.2
            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${name}/lib)
        target_compile_definitions(${name} PRIVATE FAKE${kind})
        target_link_libraries(${name} PRIVATE troupe_core troupe_flags Threads::Threads)
    endforeach()
endfunction()

# troupe_test_nccl(test): test_<test> finds them under FAKE_NCCL, with what follows that.
function(troupe_test_nccl test)
    target_compile_definitions(test_${test} PRIVATE FAKE_NCCL="${CMAKE_BINARY_DIR}/fake_nccl")
    add_dependencies(test_${test} fake_nccl fake_nccl_old fake_nccl_lacking)
    if(CUDA_INCLUDE AND EXISTS ${CUDA_INCLUDE}/nccl.h)
        target_sources(test_${test} PRIVATE tests/learner/collective/nccl_layout.c)
        target_include_directories(test_${test} SYSTEM PRIVATE ${CUDA_INCLUDE})
    endif()
endfunction()

# troupe_test_cuda(test): test_<test> is there with libtroupe_cuda.so, of which CUDA_MODULE is the path.
function(troupe_test_cuda test)
    if(TARGET troupe_cuda)
        target_compile_definitions(test_${test} PRIVATE CUDA_MODULE="$<TARGET_FILE:troupe_cuda>")
        add_dependencies(test_${test} troupe_cuda)
    endif()
endfunction()

# troupe_collective_kernels(): the same for those that combine vectors.
function(troupe_collective_kernels)
    set_source_files_properties(learner/collective/reduce_generic.c PROPERTIES COMPILE_OPTIONS -O3)
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    target_sources(troupe_learner_collective PRIVATE
        learner/collective/reduce_avx2.c learner/collective/reduce_avx512.c)
    set_source_files_properties(learner/collective/reduce_avx2.c PROPERTIES
        COMPILE_OPTIONS "-O3;-mavx2")
    set_source_files_properties(learner/collective/reduce_avx512.c PROPERTIES
        COMPILE_OPTIONS "-O3;-mavx512f;-mavx512bw;-mprefer-vector-width=512")
endfunction()

# troupe_core_kernels(): the same for looks at numbers.
function(troupe_core_kernels)
    set_source_files_properties(core/finite_generic.c PROPERTIES COMPILE_OPTIONS -O3)
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    target_sources(troupe_core PRIVATE core/finite_avx2.c core/finite_avx512.c)
    set_source_files_properties(core/finite_avx2.c PROPERTIES COMPILE_OPTIONS "-O3;-mavx2")
    set_source_files_properties(core/finite_avx512.c PROPERTIES
        COMPILE_OPTIONS "-O3;-mavx512f;-mprefer-vector-width=512")
endfunction()

# troupe_compress_kernels(): the same for codes of gradients, and loops that any processor has.
function(troupe_compress_kernels)
    set(optimize "-O3;-fno-trapping-math")
    set_source_files_properties(learner/compress/chosen.c learner/compress/codes_generic.c
        learner/compress/compress.c learner/compress/low_rank.c learner/compress/owners.c
        PROPERTIES COMPILE_OPTIONS "${optimize}")
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    target_sources(troupe_learner_compress PRIVATE learner/compress/codes_avx2.c)
    set_source_files_properties(learner/compress/codes_avx2.c PROPERTIES
        COMPILE_OPTIONS "${optimize};-mavx2")
endfunction()

# troupe_test_limit(name s): how long a test may take; under a sanitizer three times as long. Those
# that may take long begin first, beside others: one that began last would be waited for alone.
function(troupe_test_limit name seconds)
    set(limit ${seconds})
    if(CMAKE_C_FLAGS MATCHES "-fsanitize")
        math(EXPR limit "3 * ${seconds}")
    endif()
    set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} COST ${seconds})
endfunction()

# troupe_test(folder/name [TIMEOUT s] LINK ...): tests/<folder>/test_<name>.c, one ctest case with the
# folder as its label.
function(troupe_test path)
    cmake_parse_arguments(ARG "" "TIMEOUT" "LINK" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 60)
    endif()
    get_filename_component(folder ${path} DIRECTORY)
    get_filename_component(name ${path} NAME)
    add_executable(test_${name} tests/${folder}/test_${name}.c)
    target_link_libraries(test_${name} PRIVATE ${ARG_LINK} PkgConfig::CMOCKA troupe_flags)
    add_dependencies(test_${name} troupe_proto_headers)
    add_test(NAME ${name} COMMAND test_${name})
    troupe_test_limit(${name} ${ARG_TIMEOUT})
    set_tests_properties(${name} PROPERTIES LABELS ${folder})
endfunction()

# troupe_test_scripted(): test_scripted_net, the network of tests that does as a script says.
function(troupe_test_scripted)
    add_library(test_scripted_net STATIC tests/learner/scripted.c)
    target_link_libraries(test_scripted_net PRIVATE troupe_core PkgConfig::CMOCKA troupe_flags)
endfunction()

# troupe_fuzz(name [CORPUS other] LINK ...): tests/fuzz/fuzz_<name>.c on every variant of its corpus,
# or of another's.
function(troupe_fuzz name)
    cmake_parse_arguments(ARG "" "CORPUS" "LINK" ${ARGN})
    if(NOT ARG_CORPUS)
        set(ARG_CORPUS ${name})
    endif()
    add_executable(fuzz_${name} tests/fuzz/fuzz_${name}.c tests/fuzz/corpus_main.c)
    target_link_libraries(fuzz_${name} PRIVATE ${ARG_LINK} troupe_flags)
    add_dependencies(fuzz_${name} troupe_proto_headers)
    add_test(NAME fuzz_${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
        COMMAND fuzz_${name} tests/fuzz/corpus_${ARG_CORPUS})
    troupe_test_limit(fuzz_${name} 60)
endfunction()

# troupe_gloo(): test_gloo_group, gloo behind C; without gloo nothing, and TROUPE_GLOO is not defined.
function(troupe_gloo)
    add_library(test_gloo_group INTERFACE)
    if(NOT GLOO_LIBRARY)
        return()
    endif()
    add_library(gloo_group STATIC tests/learner/gloo_group.cpp)
    target_link_libraries(gloo_group PRIVATE troupe_flags)
    set_target_properties(gloo_group PROPERTIES CXX_STANDARD 17)
    target_link_libraries(test_gloo_group INTERFACE gloo_group ${GLOO_LIBRARY} stdc++)
    target_compile_definitions(test_gloo_group INTERFACE TROUPE_GLOO)
endfunction()

# troupe_bench(name [WITH part...] LINK ...): bench/bench_<name>.c and bench/<part>.c, which prints
# rows for scripts/bench.
function(troupe_bench name)
    cmake_parse_arguments(ARG "" "" "WITH;LINK" ${ARGN})
    list(TRANSFORM ARG_WITH REPLACE "(.+)" "bench/\\1.c")
    add_executable(bench_${name} bench/bench_${name}.c ${ARG_WITH})
    if(CMAKE_C_FLAGS MATCHES "-fsanitize") # its figures would say nothing
        set_target_properties(bench_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    target_link_libraries(bench_${name} PRIVATE ${ARG_LINK} troupe_flags)
    add_dependencies(bench_${name} troupe_proto_headers)
endfunction()

# troupe_shared_library(): libtroupe.so from every folder declared so far, and its installation.
function(troupe_shared_library)
    get_property(objects GLOBAL PROPERTY TROUPE_OBJECTS)
    get_property(third_party GLOBAL PROPERTY TROUPE_THIRD_PARTY)
    add_library(troupe SHARED ${objects} $<TARGET_OBJECTS:troupe_proto>)
    set_target_properties(troupe PROPERTIES LINKER_LANGUAGE C)
    target_link_libraries(troupe PRIVATE ${third_party} -Wl,--as-needed
        PUBLIC PkgConfig::PROTOBUFC)
    if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize") # sanitizers' symbols come from the executable
        target_link_options(troupe PRIVATE -Wl,--no-undefined)
    endif()
    target_include_directories(troupe PUBLIC
        $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
    set_target_properties(troupe PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
    install(TARGETS troupe EXPORT troupe)
    install(DIRECTORY include/troupe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(FILES LICENSE THIRD_PARTY_NOTICES DESTINATION ${CMAKE_INSTALL_DOCDIR})
    install(FILES rpc/proto/params.proto rpc/proto/parameter_server.proto rpc/proto/replay.proto rpc/proto/reverb.proto
        DESTINATION ${CMAKE_INSTALL_DATADIR}/troupe/proto)
    install(EXPORT troupe NAMESPACE troupe:: FILE troupe-targets.cmake
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
    configure_file(cmake/troupe-config.cmake.in troupe-config.cmake @ONLY)
    file(RELATIVE_PATH PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
    configure_file(cmake/troupe.pc.in troupe.pc @ONLY)
    configure_file(cmake/troupe-uninstalled.pc.in troupe-uninstalled.pc @ONLY)
    include(CMakePackageConfigHelpers)
    write_basic_package_version_file(${CMAKE_BINARY_DIR}/troupe-config-version.cmake
        COMPATIBILITY SameMinorVersion)
    install(FILES ${CMAKE_BINARY_DIR}/troupe-config.cmake
                  ${CMAKE_BINARY_DIR}/troupe-config-version.cmake
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/troupe)
    install(FILES ${CMAKE_BINARY_DIR}/troupe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# troupe_script_test(name TIMEOUT s COMMAND ...): a test that is a script; LABEL once: under gcc only.
function(troupe_script_test name)
    cmake_parse_arguments(ARG "ONCE" "TIMEOUT" "COMMAND" ${ARGN})
    add_test(NAME ${name} COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    troupe_test_limit(${name} ${ARG_TIMEOUT})
    set_tests_properties(${name} PROPERTIES
        ENVIRONMENT "BUILD_DIR=${CMAKE_BINARY_DIR};CC=${CMAKE_C_COMPILER}")
    if(ARG_ONCE)
        set_tests_properties(${name} PROPERTIES LABELS once)
    endif()
endfunction()

# troupe_test_program(folder/name LINK ...): tests/<folder>/<name>.c, a program that tests start.
function(troupe_test_program path)
    cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
    get_filename_component(name ${path} NAME)
    add_executable(${name} tests/${path}.c)
    target_link_libraries(${name} PRIVATE ${ARG_LINK} troupe_flags)
    add_dependencies(${name} troupe_proto_headers)
endfunction()

# troupe_test_starts(test program...): test_<test> starts these; it finds the path of each in the
# macro <PROGRAM>, the sources in SOURCE_DIR, and a command that compiles like this build.
function(troupe_test_starts test)
    target_compile_definitions(test_${test} PRIVATE SOURCE_DIR="${CMAKE_SOURCE_DIR}"
        COMPILER="${CMAKE_C_COMPILER} ${CMAKE_C_FLAGS}")
    foreach(program IN LISTS ARGN)
        string(TOUPPER ${program} macro)
        target_compile_definitions(test_${test} PRIVATE ${macro}="$<TARGET_FILE:${program}>")
        add_dependencies(test_${test} ${program})
    endforeach()
endfunction()

# troupe_example(name): examples/<name>.c against the shared library, as a user would. The target
# `examples` is all of them.
add_custom_target(examples)
function(troupe_example name)
    add_executable(${name} examples/${name}.c)
    add_dependencies(examples ${name})
    target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
    target_link_libraries(${name} PRIVATE troupe)
endfunction()

# troupe_cli_texts(): the tool's man pages and completions, made by the tool itself.
function(troupe_cli_texts)
    set(out ${CMAKE_BINARY_DIR}/texts)
    add_custom_command(OUTPUT ${out}/troupe.bash
        COMMAND ${CMAKE_COMMAND} -E rm -rf ${out}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
        COMMAND troupe_cli man --dir=${out}/man
        COMMAND troupe_cli completion bash > ${out}/troupe.bash
        COMMAND troupe_cli completion fish > ${out}/troupe.fish
        DEPENDS troupe_cli COMMENT "Writing man pages and completion")
    add_custom_target(troupe_texts ALL DEPENDS ${out}/troupe.bash)
    install(DIRECTORY ${out}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${out}/troupe.bash RENAME troupe
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${out}/troupe.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endfunction()
