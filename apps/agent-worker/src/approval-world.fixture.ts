import { type LlmBackend, type ModelRequest, messageStop, toolCallDelta } from "@larkline/model";
import type { Message } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { checkPairs, session, type World } from "./turn-world.fixture.ts";

// For tests: turns whose calls wait for people.

/** A call that the model asks for: of a tool, and with which arguments. */
export type Wanted = string | { name: string; arguments: object };

/** A model that asks for one batch of calls after the other, then says what they were answered with. */
export function calling(...batches: Wanted[][]): { backend: LlmBackend; requests: ModelRequest[] } {
  const requests: ModelRequest[] = [];
  const backend: LlmBackend = {
    async *stream(request): AsyncIterable<ModelChunk> {
      const { alive: _alive, ...asked } = request;
      checkPairs(request.messages);
      requests.push(structuredClone(asked));
      const answered = answersIn(request);
      const step = request.messages.slice(answered.at).filter(({ role }) => role === "tool").length;
      const batch = batches[step];
      if (batch === undefined) return yield* saying(answered.texts.join("|"));
      for (const [index, wanted] of batch.entries()) {
        const call = typeof wanted === "string" ? { name: wanted, arguments: {} } : wanted;
        const id = `c${step + 1}-${index}`;
        yield toolCallDelta(index, {
          id,
          name: call.name,
          arguments: JSON.stringify(call.arguments),
        });
      }
      yield messageStop("tool_use");
    },
  };
  return { backend, requests };
}

async function* saying(text: string): AsyncIterable<ModelChunk> {
  yield { type: "text_delta", text };
  yield messageStop("end_turn");
}

/** What the calls since the last message of a person were answered with. */
function answersIn({ messages }: ModelRequest): { at: number; texts: string[] } {
  const at = messages.findLastIndex(({ role }) => role === "user");
  return { at, texts: resultsOf(messages.slice(at)).map(([text]) => text) };
}

function resultsOf(messages: readonly Message[]): [text: string, isError: boolean][] {
  const parts = messages.flatMap(({ content }) =>
    content.filter((part) => part.type === "tool_result"),
  );
  return parts.map(({ content, isError }) => [typeof content === "string" ? content : "", isError]);
}

/** The results in the history of the session: what the model got, and whether it was an error. */
export async function resultsIn({ store }: World): Promise<[text: string, isError: boolean][]> {
  return resultsOf(await store.history(session));
}

/** All events of the session, in order. */
export async function eventsOf(world: World): Promise<EngineEvent[]> {
  return (await world.events.read(session, 0, 10_000)).map(({ event }) => event);
}

export function typesOf(events: readonly EngineEvent[]): string[] {
  return events.map(({ type }) => type);
}
