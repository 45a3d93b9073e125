import type { Env } from "@larkline/process/config";
import { createApprovalClient } from "./approval-client.ts";
import { createChatClient } from "./chat-client.ts";
import { loadConfig, usage } from "./config.ts";
import { runConversation } from "./conversation.ts";
import { createTerminal } from "./terminal.ts";
import { texts } from "./texts.ts";

/** `larkline chat`: a conversation in the terminal, over the HTTP API of ingress. Ends the process. */
export async function runChat(args: readonly string[], env: Env): Promise<never> {
  const loaded = loadConfig(args, env);
  if (!loaded.ok) {
    process.stderr.write(`${loaded.error}\n\n${usage}\n`);
    process.exit(2);
  }
  const { language, ...connection } = loaded.value;
  const terminal = createTerminal({ input: process.stdin, output: process.stdout, signals: process });
  const client = createChatClient({ ...connection, texts: texts[language] });
  const approvals = createApprovalClient(connection);

  // The reader of our output has left.
  process.stdout.on("error", () => process.exit(0));

  await runConversation({ terminal, client, approvals, texts: texts[language] });
  process.exit(0);
}
