/** Longest message of a server over HTTP, in bytes. */
export const maxMessageBytes = 16 * 1_048_576;
const blankLines = ["\n\n", "\n\r\n"];

/** How much of a message a chunk leaves open. */
function openBytes(chunk: Buffer, before: number): number {
  const ends = blankLines.map((blank) => chunk.lastIndexOf(blank)).filter((at) => at !== -1);
  return ends.length === 0 ? before + chunk.length : chunk.length - Math.max(...ends);
}

/** Breaks off where a message grows too long: of a stream of events each one counts for itself. */
function bounded(isStream: boolean): TransformStream<Uint8Array, Uint8Array> {
  let bytes = 0;
  return new TransformStream({
    transform: (chunk, controller) => {
      bytes = isStream ? openBytes(Buffer.from(chunk), bytes) : bytes + chunk.byteLength;
      if (bytes > maxMessageBytes) controller.error(new Error(`a message exceeds ${maxMessageBytes} bytes`));
      else controller.enqueue(chunk);
    },
  });
}

/** The same fetch, for servers that are not trusted with the memory of this process: an answer without end is broken off. */
export function boundedFetch(fetchAny: typeof fetch): typeof fetch {
  return async (input, init) => {
    const response = await fetchAny(input, init);
    const { body, status, statusText, headers } = response;
    if (body === null) return response;
    const isStream = headers.get("content-type")?.startsWith("text/event-stream") === true;
    return new Response(body.pipeThrough(bounded(isStream)), { status, statusText, headers });
  };
}
