# SOURCE's text as the C string NAME in TARGET.
file(READ ${SOURCE} text HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${text}")
get_filename_component(file ${SOURCE} NAME)
file(WRITE ${TARGET} "// Made from python/spillway/${file}.
extern const char ${NAME}[];
const char ${NAME}[] = {${bytes}0};
")
