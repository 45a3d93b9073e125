import { Type, type Static } from "typebox";

const days = Type.Integer({ minimum: 0, maximum: 36_500 });

/** How long what is stored is kept. 0 days: for good. */
export const RetentionInput = Type.Object(
  {
    /** Conversations, after their last message. Default 90 days. */
    conversationDays: Type.Optional(days),
    /** Messages of one conversation that are kept although no model sees them any more. Default 1,000. */
    historyMessages: Type.Optional(Type.Integer({ minimum: 0, maximum: 10_000_000 })),
    /** Records of the audit log. Default 365 days. */
    auditDays: Type.Optional(days),
    /** About how many records the audit log has at most, the oldest go first. Default 1,000,000. */
    auditRecords: Type.Optional(Type.Integer({ minimum: 1_000, maximum: 1_000_000_000 })),
    /** Files and images, after they were last stored. Default 7 days. */
    blobDays: Type.Optional(Type.Integer({ minimum: 1, maximum: 36_500 })),
    /** What was done for each message, for "Why no answer?", after its last step. Default 3 days. */
    traceDays: Type.Optional(Type.Integer({ minimum: 1, maximum: 30 })),
  },
  { additionalProperties: false },
);

/** Retention with its defaults. */
export type RetentionSettings = Readonly<Required<Static<typeof RetentionInput>>>;

export const defaultRetention: RetentionSettings = {
  conversationDays: 90,
  historyMessages: 1_000,
  auditDays: 365,
  auditRecords: 1_000_000,
  blobDays: 7,
  traceDays: 3,
};
