# Compiler flags that every target of the project shares, as one interface library.
add_library(turn_flags INTERFACE)
target_compile_definitions(turn_flags INTERFACE _GNU_SOURCE)
target_compile_options(turn_flags INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
    -Wwrite-strings -Wvla -Wformat=2 -Wundef
    -fno-strict-aliasing -fno-common)
if(TURN_WERROR)
    target_compile_options(turn_flags INTERFACE -Werror)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release" OR CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(turn_flags INTERFACE -fstack-protector-strong)
    if(NOT TURN_SANITIZE)
        target_compile_definitions(turn_flags INTERFACE _FORTIFY_SOURCE=2)
    endif()
endif()
if(TURN_SANITIZE)
    target_compile_options(turn_flags INTERFACE -fsanitize=${TURN_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(turn_flags INTERFACE -fsanitize=${TURN_SANITIZE})
endif()

# turn_library(NAME SOURCES... [LINK libs...]): a static library whose include path is its own folder.
function(turn_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>)
    target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE turn_flags ${ARG_PRIVATE_LINK})
endfunction()
