import { textOf, type EventOf, type InboundMessage } from "@larkline/protocol";

/** `/name`, alone or with arguments after a blank. Paths such as `/etc/hosts` are none. */
const command = /^\/([A-Za-z][\w-]{0,63})(?:\s+([^]*))?$/;

/**
 * What to report when a message is a slash command. It is only reported: whoever follows the events
 * may act on it, while the model answers the message like any other.
 */
export function slashCommandIn({ parts }: InboundMessage): EventOf<"slash_command"> | undefined {
  const found = command.exec(textOf({ role: "user", content: parts }).trim());
  if (found === null) return undefined;
  const [, name = "", args = ""] = found;
  return { type: "slash_command", name, args };
}
