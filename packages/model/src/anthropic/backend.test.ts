import { describeBackend } from "../backend.suite.ts";
import { startModelServer } from "@larkline/testkit";
import { createAnthropicBackend } from "./index.ts";

describeBackend("createAnthropicBackend", async () => {
  const server = await startModelServer({ apiKey: "right" });
  const connect = (apiKey: string) => createAnthropicBackend({ apiKey, baseUrl: server.url });
  return {
    backend: connect("right"),
    strangerBackend: connect("stranger"),
    provider: "anthropic",
    model: "claude-sonnet-4-6",
    say: (reply) => server.setScript(() => reply),
    bodies: () => server.requests.map((request) => request.body),
    aborted: () => server.aborted,
    close: () => server.close(),
  };
});
