# include()d while FOLDER is installed: in its documents, a link to what is only in the source becomes plain text, and one to the sample
# configurations leads to where they are installed.
file(GLOB documents ${FOLDER}/*.md ${FOLDER}/docs/*.md)
foreach(document IN LISTS documents)
  file(READ ${document} text)
  string(REGEX REPLACE "\\]\\(config/samples\\)" "](samples)" linked "${text}")
  string(REGEX REPLACE "\\[([^][]*)\\]\\((\\.\\./)?(ARCHITECTURE\\.md|CONTRIBUTING\\.md|STYLE\\.md|tests/[^)]*)\\)" "\\1" linked "${linked}")
  if(NOT "${linked}" STREQUAL "${text}")
    file(WRITE ${document} "${linked}")
  endif()
endforeach()
