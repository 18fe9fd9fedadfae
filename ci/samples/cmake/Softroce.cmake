# softroce_add_test(NAME name COMMAND program [arguments…] [OPTIONS options of roce run…])
#
# Adds a test that runs a program on softroce and checks its packets: a violation of the protocol fails the test. The
# command `roce` has to be on the PATH, or named by -DROCE=….
find_program(ROCE roce REQUIRED)

function(softroce_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 TEST "" "NAME" "COMMAND;OPTIONS")
  list(POP_FRONT TEST_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  add_test(NAME ${TEST_NAME}
    COMMAND ${ROCE} run --check ${TEST_OPTIONS} -- ${program} ${TEST_COMMAND})
  set_tests_properties(${TEST_NAME} PROPERTIES TIMEOUT 60)
endfunction()
