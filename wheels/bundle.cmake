# Installs build/bundle/ as tilewright/_prebuilt when `tilewright dev bundle-kernels` has made it.
#
# CMake only copies: a compiler inside the build step would need the toolchain for `pip install .`, and a
# build without a bundle is a good one, whose kernels are compiled just in time. An editable install takes
# nothing, because the runtime reads build/bundle/ itself and a copy would go stale at the next bundle.
set(BUNDLE ${CMAKE_CURRENT_SOURCE_DIR}/../build/bundle)
if(SKBUILD_STATE STREQUAL "editable")
    message(STATUS "tilewright: editable install, the runtime reads build/bundle/ itself")
elseif(EXISTS ${BUNDLE}/manifest.json)
    message(STATUS "tilewright: bundle found, installing it as tilewright/_prebuilt")
    install(DIRECTORY ${BUNDLE}/ DESTINATION tilewright/_prebuilt
        FILES_MATCHING PATTERN "manifest.json" PATTERN "tuned.json" PATTERN "*.pack")
else()
    message(STATUS "tilewright: no bundle, kernels will be compiled just in time")
endif()
