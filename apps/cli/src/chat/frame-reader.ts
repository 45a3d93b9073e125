import { jsonParserOf, StreamFrame } from "@larkline/protocol";
import { createParser, type EventSourceMessage } from "eventsource-parser";

/** A frame and the id that the server gave it, if any. */
export interface ReceivedFrame {
  frame: StreamFrame;
  id: string | undefined;
}

// A frame holds one tool result at most, which the server caps far below this.
const maxFrameLength = 16 * 1024 * 1024;

const parseFrame = jsonParserOf(StreamFrame);

/**
 * Turns the bytes of an event stream into frames. Bytes may be cut anywhere, inside a character
 * too. Comments, unknown fields and data that is no frame are skipped. Throws when a frame is
 * larger than 16 MiB, and what `bytes` throws.
 */
export async function* readFrames(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<ReceivedFrame> {
  const received: EventSourceMessage[] = [];
  const parser = createParser({ onEvent: (event) => received.push(event), maxBufferSize: maxFrameLength });
  const decoder = new TextDecoder();
  for await (const chunk of bytes) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    for (const event of received.splice(0)) {
      const parsed = parseFrame(event.data);
      if (parsed.ok) yield { frame: parsed.value, id: event.id };
    }
  }
}
