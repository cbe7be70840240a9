# As a script: SOURCE's text as the C string NAME in TARGET.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${SOURCE} text HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${text}")
  get_filename_component(file ${SOURCE} NAME)
  file(WRITE ${TARGET} "// Made from ${file}.
extern const char ${NAME}[];
const char ${NAME}[] = {${bytes}0};
")
  return()
endif()

# spillway_embed(VARIABLE NAME SOURCE): adds to the list VARIABLE a file with SOURCE's text as the C string NAME.
set(SPILLWAY_EMBED ${CMAKE_CURRENT_LIST_FILE})
function(spillway_embed variable name source)
  set(target ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  add_custom_command(OUTPUT ${target}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${source} -DTARGET=${target} -DNAME=${name} -P ${SPILLWAY_EMBED}
    DEPENDS ${source} ${SPILLWAY_EMBED})
  set(${variable} ${${variable}} ${target} PARENT_SCOPE)
endfunction()
