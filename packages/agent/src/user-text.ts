/** What {@link userTextOf} reads of a message event. */
export interface MessageContent {
  messageType: string;
  /** JSON text as the platform sends it, or the object itself. */
  content: unknown;
  mentions?: readonly { key: string; name?: string }[] | undefined;
}

/** The text a person meant. */
export function userTextOf({ content }: MessageContent): string {
  return typeof content === "string" ? content : "";
}
