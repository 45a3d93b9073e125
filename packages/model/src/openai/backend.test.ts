import type { LlmBackend } from "../index.ts";
import { describeBackend } from "../backend.suite.ts";
import { startModelServer } from "@larkline/testkit";
import {
  createOpenAiChatBackend,
  createOpenAiResponsesBackend,
  type OpenAiBackendOptions,
} from "./index.ts";

type Create = (options: OpenAiBackendOptions) => LlmBackend;

const interfaces: [string, Create][] = [
  ["createOpenAiChatBackend", createOpenAiChatBackend],
  ["createOpenAiResponsesBackend", createOpenAiResponsesBackend],
];

for (const [name, create] of interfaces) {
  describeBackend(name, async () => {
    const server = await startModelServer({ apiKey: "right" });
    const connect = (apiKey: string) => create({ apiKey, baseUrl: `${server.url}/compatible/v1` });
    return {
      backend: connect("right"),
      strangerBackend: connect("stranger"),
      provider: "openai",
      model: "gpt-5.4",
      say: (reply) => server.setScript(() => reply),
      bodies: () => server.requests.map((request) => request.body),
      aborted: () => server.aborted,
      close: () => server.close(),
    };
  });
}
