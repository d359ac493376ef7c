/*
 * Streams and events. Each stream has a thread of its own that does its work in order, so asynchronous copies really are; the setting
 * async-ms makes each of them take at least so long. The null stream works at once. Lock held.
 */
#ifndef MX_FAKES_STREAM_H
#define MX_FAKES_STREAM_H

#include <stdbool.h>

#include "../cuda/abi.h"

CUresult mx_stream_create(CUstream *stream, CUcontext context);
CUresult mx_stream_destroy(CUstream stream);
/* INVALID_HANDLE unless it is the null stream or one that lives. */
CUresult mx_stream_check(CUstream stream);
bool mx_stream_idle(CUstream stream);
void mx_stream_drain(CUstream stream);
/* Waits for, and ends, all streams and events of a context. */
void mx_streams_end(CUcontext context);
void mx_streams_drain(CUcontext context);

/* Copies at once on the null stream, else in the stream's turn. Both ranges are held until it is done. */
void mx_stream_copy(CUstream stream, void *to, const void *from, size_t size);
void mx_stream_callback(CUstream stream, mx_callback callback, void *data);
void mx_stream_wait(CUstream stream, CUevent event);

CUresult mx_event_create(CUevent *event, CUcontext context);
CUresult mx_event_destroy(CUevent event);
CUresult mx_event_check(CUevent event);
void mx_event_record(CUevent event, CUstream stream);
bool mx_event_done(CUevent event);

#endif
