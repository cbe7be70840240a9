# SOURCE's text as the C string spillway_rehearsal_python_source in TARGET.
file(READ ${SOURCE} text HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${text}")
file(WRITE ${TARGET} "// Made from python/spillway/_rehearsal.py.
extern const char spillway_rehearsal_python_source[];
const char spillway_rehearsal_python_source[] = {${bytes}0};
")
