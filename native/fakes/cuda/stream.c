/* Streams and events. */
#include "../core/stream.h"

#include "entry.h"

#define NEED_STREAM(stream) REFUSE_IF(mx_stream_check(stream), CUDA_ERROR_INVALID_HANDLE)
#define NEED_EVENT(event) REFUSE_IF(mx_event_check(event), CUDA_ERROR_INVALID_HANDLE)

MX_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  ENTER_WITH_CONTEXT(cuStreamCreate);
  REFUSE_IF(!stream || flags > 1, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_stream_create(stream, context));
}

MX_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER_WITH_CONTEXT(cuStreamDestroy_v2);
  return LEAVE(mx_stream_destroy(stream));
}

MX_EXPORT CUresult cuStreamQuery(CUstream stream) {
  ENTER_WITH_CONTEXT(cuStreamQuery);
  NEED_STREAM(stream);
  return LEAVE(mx_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

MX_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  ENTER_WITH_CONTEXT(cuStreamSynchronize);
  NEED_STREAM(stream);
  mx_stream_drain(stream);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  ENTER_WITH_CONTEXT(cuStreamWaitEvent);
  NEED_STREAM(stream);
  NEED_EVENT(event);
  REFUSE_IF(flags > 1, CUDA_ERROR_INVALID_VALUE);
  mx_stream_wait(stream, event);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuStreamAddCallback(CUstream stream, mx_callback callback, void *data, unsigned flags) {
  ENTER_WITH_CONTEXT(cuStreamAddCallback);
  NEED_STREAM(stream);
  REFUSE_IF(!callback || flags, CUDA_ERROR_INVALID_VALUE);
  mx_stream_callback(stream, callback, data);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
  ENTER_WITH_CONTEXT(cuEventCreate);
  REFUSE_IF(!event || flags > 7, CUDA_ERROR_INVALID_VALUE);
  return LEAVE(mx_event_create(event, context));
}

MX_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER_WITH_CONTEXT(cuEventRecord);
  NEED_STREAM(stream);
  NEED_EVENT(event);
  mx_event_record(event, stream);
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuEventQuery(CUevent event) {
  ENTER_WITH_CONTEXT(cuEventQuery);
  NEED_EVENT(event);
  return LEAVE(mx_event_done(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

MX_EXPORT CUresult cuEventSynchronize(CUevent event) {
  ENTER_WITH_CONTEXT(cuEventSynchronize);
  NEED_EVENT(event);
  while (!mx_event_done(event)) mx_wait();
  return LEAVE(CUDA_SUCCESS);
}

MX_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  ENTER_WITH_CONTEXT(cuEventDestroy_v2);
  return LEAVE(mx_event_destroy(event));
}
