# The page of `spillway report --html`: web/ and the parts of d3 that Debian has become one file, which template.S takes into
# the program.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(page ${CMAKE_CURRENT_SOURCE_DIR}/spillway/page)
set(page_template ${CMAKE_CURRENT_BINARY_DIR}/page_template.html)
file(GLOB page_parts CONFIGURE_DEPENDS ${page}/web/* ${page}/web/views/*)
foreach(library IN ITEMS zoom hierarchy array)
  if(NOT EXISTS /usr/share/nodejs/d3-${library}/dist/d3-${library}.min.js)
    message(FATAL_ERROR "The package node-d3-${library} is missing: run tools/setup first")
  endif()
endforeach()
add_custom_command(OUTPUT ${page_template}
  COMMAND ${Python3_EXECUTABLE} ${page}/assemble.py ${page}/web ${page_template}
  DEPENDS ${page}/assemble.py ${page_parts}
  VERBATIM)
set_source_files_properties(spillway/page/template.S PROPERTIES OBJECT_DEPENDS ${page_template}
  COMPILE_DEFINITIONS "SPILLWAY_PAGE_TEMPLATE=\"${page_template}\"")
