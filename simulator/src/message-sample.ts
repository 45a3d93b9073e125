import type { JsonObject } from "./json-fields.ts";
import type { Writing } from "./person-content.ts";

/** Content of a kind as the message content guide shows it; kinds that nobody knows are empty objects. */
export function sampleContent({ platform, chat, sender }: Writing, messageType: string): JsonObject {
  const startMs = platform.now();
  const event = { summary: "Weekly review", start_time: String(startMs), end_time: String(startMs + 3_600_000) };
  switch (messageType) {
    case "sticker":
      return { file_key: platform.media.add({ kind: "file", file: { bytes: new Uint8Array(0) } }).key };
    case "interactive":
      return receivedCard;
    case "share_chat":
      return { chat_id: chat.chatId };
    case "share_user":
      return { user_id: sender.openId };
    case "location":
      return { name: "Shenzhen Bay Park", longitude: "113.944", latitude: "22.516" };
    case "hongbao":
      return { text: "[红包]" };
    case "share_calendar_event":
    case "calendar":
    case "general_calendar":
      return event;
    case "system":
      return {
        template: "{from_user} invited {to_chatters} to this chat.",
        from_user: [sender.name],
        to_chatters: [sender.name],
      };
    case "video_chat":
      return { topic: "Stand-up", start_time: String(startMs) };
    case "todo":
      return { task_id: "bdbcdd25-6fe6-4f65-9bb3-3a7a9b2f2a6a", summary: todoSummary, due_time: String(startMs) };
    case "vote":
      return { topic: "Lunch?", options: ["Noodles", "Rice"] };
    default:
      return withoutBytes(messageType);
  }
}

/** Cards are received simplified, not as they were sent. */
const receivedCard = {
  title: "Deployment",
  elements: [
    [
      { tag: "text", text: "Version 1.2 is ready." },
      { tag: "button", text: "Deploy", type: "primary" },
    ],
  ],
};

const todoSummary = { title: "", content: [[{ tag: "text", text: "Write the report", style: [] }]] };

function withoutBytes(messageType: string): JsonObject {
  if (["image", "file", "folder", "audio", "media", "post", "merge_forward"].includes(messageType)) {
    throw new Error(`A message of type ${messageType} needs its own field or content`);
  }
  return {};
}
