import { createApprovalClient } from "./approval-client.ts";
import { createChatClient } from "./chat-client.ts";
import { loadConfig, usage } from "./config.ts";
import { runConversation } from "./conversation.ts";
import { createTerminal } from "./terminal.ts";
import { texts } from "./texts.ts";

const loaded = loadConfig(process.argv.slice(2), process.env);
if (!loaded.ok) {
  console.error(`${loaded.error}\n\n${usage}`);
  process.exit(2);
}
const { language, ...connection } = loaded.value;
const terminal = createTerminal({ input: process.stdin, output: process.stdout, signals: process });
const client = createChatClient({ ...connection, texts: texts[language] });
const approvals = createApprovalClient(connection);

// Whoever reads our output has left.
process.stdout.on("error", () => process.exit(0));

await runConversation({ terminal, client, approvals, texts: texts[language] });
process.exit(0);
