/** A text of the setup in both languages. */
export interface ManifestText {
  zh: string;
  en: string;
}

/**
 * `required`: the bot does not work without it; `recommended`: something visible is missing without
 * it; `optional`: only some deployments need it, so it is not asked for by default.
 */
export type ScopeLevel = "required" | "recommended" | "optional";

/** A permission of the app ("scope"), as the developer console names it. */
export interface AppScope {
  name: string;
  level: ScopeLevel;
  /** Wider scopes that allow the same. */
  coveredBy: readonly string[];
  purpose: ManifestText;
}

/** An event or callback that the app subscribes to. */
export interface AppSubscription {
  name: string;
  level: ScopeLevel;
  purpose: ManifestText;
}

export interface AppManifest {
  scopes: readonly AppScope[];
  events: readonly AppSubscription[];
  callbacks: readonly AppSubscription[];
}

/**
 * All that an app needs in the developer console, with what each entry is for. The names and what
 * covers what are from the pages of the operations and events ("Receive message", "Send message",
 * "Get chat information", "Create card entity" and so on).
 */
export const appManifest: AppManifest = {
  scopes: [
    {
      name: "im:message.p2p_msg:readonly",
      level: "required",
      coveredBy: ["im:message.p2p_msg"],
      purpose: {
        zh: "接收用户发给机器人的单聊消息",
        en: "Receive what people write to the bot directly",
      },
    },
    {
      name: "im:message.group_at_msg:readonly",
      level: "required",
      coveredBy: ["im:message.group_at_msg", "im:message.group_at_msg.include_bot:readonly"],
      purpose: {
        zh: "接收群聊中 @ 机器人的消息",
        en: "Receive group messages that mention the bot",
      },
    },
    {
      name: "im:message:send_as_bot",
      level: "required",
      coveredBy: ["im:message", "im:message:send"],
      purpose: { zh: "以机器人身份回复", en: "Answer as the bot" },
    },
    {
      name: "im:message:readonly",
      level: "required",
      coveredBy: ["im:message"],
      purpose: {
        zh: "下载用户发送的图片和文件，读取被引用、被合并转发的消息，接收消息撤回事件",
        en: "Load people's images and files, read quoted and forwarded messages, learn of recalled messages",
      },
    },
    {
      name: "cardkit:card:write",
      level: "required",
      coveredBy: [],
      purpose: { zh: "用逐字更新的卡片显示回答", en: "Show answers on cards that type" },
    },
    {
      name: "im:resource",
      level: "recommended",
      coveredBy: ["im:resource:upload"],
      purpose: { zh: "上传回答中的图片和文件", en: "Upload images and files of answers" },
    },
    {
      name: "im:chat:readonly",
      level: "required",
      coveredBy: ["im:chat"],
      purpose: {
        zh: "识别话题群、读取群名称，接收机器人进群和群信息变更事件",
        en: "Tell topic groups from others, know the group's name, learn that the bot was added",
      },
    },
    {
      name: "im:message.reactions:write_only",
      level: "recommended",
      coveredBy: ["im:message"],
      purpose: { zh: "用表情回复表示已收到", en: "Show by a reaction that a message was received" },
    },
    {
      name: "contact:user.basic_profile:readonly",
      level: "recommended",
      coveredBy: ["contact:user.base:readonly"],
      purpose: {
        zh: "让模型知道群聊中是谁在说话",
        en: "Tell the model who is speaking in a group",
      },
    },
    {
      name: "application:application:self_manage",
      level: "recommended",
      coveredBy: ["admin:app.info:readonly"],
      purpose: {
        zh: "让 npm run doctor 检查事件和回调订阅",
        en: "Let npm run doctor check the event and callback subscriptions",
      },
    },
    {
      name: "application:app_slash_command:read",
      level: "recommended",
      coveredBy: [],
      purpose: {
        zh: "让 npm run doctor 检查命令面板",
        en: "Let npm run doctor check the command panel",
      },
    },
    {
      name: "application:app_slash_command:write",
      level: "recommended",
      coveredBy: [],
      purpose: {
        zh: "让 npm run setup 把命令登记到命令面板（输入 / 时显示）",
        en: "Let npm run setup register the commands that clients show after a slash",
      },
    },
    {
      name: "im:message.group_msg",
      level: "optional",
      coveredBy: [],
      purpose: {
        zh: "接收群聊中的所有消息（groups 为 all 或 groupContext 大于 0 时必需），故障后确认群内回复是否已送达；敏感权限，需管理员审核",
        en: "Receive all messages of groups (needed for groups: all and for groupContext), and see after a failure whether an answer arrived there; sensitive, an administrator decides",
      },
    },
    {
      name: "contact:group:readonly",
      level: "optional",
      coveredBy: [],
      purpose: {
        zh: "按用户组判断谁可以批准操作、谁可以使用哪些工具（配置中的角色含用户组时必需）",
        en: "Tell by user group who may approve actions and use which tools (needed where roles name user groups)",
      },
    },
    {
      name: "docs:document.comment:read",
      level: "optional",
      coveredBy: [],
      purpose: {
        zh: "读取提到机器人的文档评论（doors.comments）",
        en: "Read comments in documents that mention the bot (doors.comments)",
      },
    },
    {
      name: "docs:document.comment:create",
      level: "optional",
      coveredBy: [],
      purpose: {
        zh: "在文档评论中回答（doors.comments）",
        en: "Answer in comments of documents (doors.comments)",
      },
    },
    {
      name: "approval:approval:readonly",
      level: "optional",
      coveredBy: ["approval:approval"],
      purpose: {
        zh: "接收审批的变化（doors.approvals）",
        en: "Get the changes of approvals (doors.approvals)",
      },
    },
    {
      name: "task:task:read",
      level: "optional",
      coveredBy: ["task:task:write"],
      purpose: {
        zh: "读取机器人负责的任务，并接收其事件（doors.tasks）",
        en: "Read tasks of the bot, and get their events (doors.tasks)",
      },
    },
    {
      name: "task:task:write",
      level: "optional",
      coveredBy: [],
      purpose: {
        zh: "完成机器人负责的任务（doors.tasks）",
        en: "Complete tasks of the bot (doors.tasks)",
      },
    },
    {
      name: "task:comment:read",
      level: "optional",
      coveredBy: ["task:comment:write"],
      purpose: { zh: "读取任务的评论（doors.tasks）", en: "Read comments of tasks (doors.tasks)" },
    },
    {
      name: "task:comment:write",
      level: "optional",
      coveredBy: [],
      purpose: {
        zh: "在任务的评论中回答（doors.tasks）",
        en: "Answer in comments of tasks (doors.tasks)",
      },
    },
  ],
  events: [
    {
      name: "im.message.receive_v1",
      level: "required",
      purpose: { zh: "收到消息", en: "A message was received" },
    },
    {
      name: "im.message.recalled_v1",
      level: "recommended",
      purpose: {
        zh: "消息被撤回：停止对它的处理",
        en: "A message was recalled: work on it is stopped",
      },
    },
    {
      name: "im.chat.member.bot.added_v1",
      level: "recommended",
      purpose: { zh: "机器人进群：发送欢迎语", en: "The bot was added to a group: it says hello" },
    },
    {
      name: "im.chat.access_event.bot_p2p_chat_entered_v1",
      level: "recommended",
      purpose: { zh: "用户进入与机器人的会话", en: "A person opened the chat with the bot" },
    },
    {
      name: "application.bot.menu_v6",
      level: "recommended",
      purpose: { zh: "用户点击机器人菜单", en: "A person chose an entry of the bot's menu" },
    },
    {
      name: "im.chat.updated_v1",
      level: "recommended",
      purpose: {
        zh: "群信息变更：重新读取群信息",
        en: "A group changed: what is known of it is read again",
      },
    },
    {
      name: "im.message.reaction.created_v1",
      level: "optional",
      purpose: {
        zh: "用表情给回答打分（feishu.feedback）",
        en: "A person rated an answer by a reaction (feishu.feedback)",
      },
    },
    {
      name: "im.message.reaction.deleted_v1",
      level: "optional",
      purpose: {
        zh: "收回这样的打分（feishu.feedback）",
        en: "A person took such a rating back (feishu.feedback)",
      },
    },
    {
      name: "drive.notice.comment_add_v1",
      level: "optional",
      purpose: {
        zh: "文档评论提到了机器人（doors.comments）",
        en: "A comment in a document mentions the bot (doors.comments)",
      },
    },
    {
      name: "approval_instance",
      level: "optional",
      purpose: {
        zh: "审批的状态有变化（doors.approvals）",
        en: "The state of an approval has changed (doors.approvals)",
      },
    },
    {
      name: "approval_task",
      level: "optional",
      purpose: {
        zh: "审批等待某人处理（doors.approvals）",
        en: "An approval waits for a person (doors.approvals)",
      },
    },
    {
      name: "task.task.update_user_access_v2",
      level: "optional",
      purpose: {
        zh: "机器人负责的任务有变化（doors.tasks）",
        en: "A task for which the bot is responsible has changed (doors.tasks)",
      },
    },
    {
      name: "vc.meeting.participant_meeting_ended_v1",
      level: "optional",
      purpose: {
        zh: "会议结束：运行等待它的定时任务（doors.personal）",
        en: "A meeting of a person ended: runs schedules that wait for it (doors.personal)",
      },
    },
    {
      name: "minutes.minute.generated_v1",
      level: "optional",
      purpose: {
        zh: "妙记已生成：运行等待它的定时任务（doors.personal）",
        en: "Minutes of a person are ready: runs schedules that wait for it (doors.personal)",
      },
    },
    {
      name: "mail.user_mailbox.event.message_received_v1",
      level: "optional",
      purpose: {
        zh: "收到邮件：运行等待它的定时任务（doors.personal）",
        en: "A person has got a mail: runs schedules that wait for it (doors.personal)",
      },
    },
    {
      name: "calendar.calendar.event.changed_v4",
      level: "optional",
      purpose: {
        zh: "日历有变化：运行等待它的定时任务（doors.personal）",
        en: "The calendar of a person has changed: runs schedules that wait for it (doors.personal)",
      },
    },
    {
      name: "im.chat.member.bot.deleted_v1",
      level: "optional",
      purpose: {
        zh: "机器人被移出群：暂停群里的定时任务（schedules）",
        en: "The bot was taken out of a group: schedules there pause (schedules)",
      },
    },
    {
      name: "im.chat.disbanded_v1",
      level: "optional",
      purpose: {
        zh: "群被解散：暂停群里的定时任务（schedules）",
        en: "A group was dissolved: schedules there pause (schedules)",
      },
    },
    {
      name: "auth.user_access_token.revoked_v4",
      level: "optional",
      purpose: {
        zh: "用户撤销授权：删除其令牌并暂停其定时任务（GRANT_KEY）",
        en: "A person took a grant back: their tokens are erased, their schedules pause (GRANT_KEY)",
      },
    },
    {
      name: "contact.user.deleted_v3",
      level: "optional",
      purpose: {
        zh: "成员离职：删除其令牌并暂停其定时任务",
        en: "A person left: their tokens are erased, their schedules pause",
      },
    },
  ],
  callbacks: [
    {
      name: "card.action.trigger",
      level: "required",
      purpose: {
        zh: "用户点击卡片按钮（停止、确认等）",
        en: "A person pressed a button of a card (stop, approve)",
      },
    },
  ],
};

/** The scopes of these levels that are neither granted nor covered by a wider one. */
export function missingScopes(
  granted: ReadonlySet<string>,
  levels: readonly ScopeLevel[],
): AppScope[] {
  return appManifest.scopes.filter(
    ({ name, level, coveredBy }) =>
      levels.includes(level) && ![name, ...coveredBy].some((one) => granted.has(one)),
  );
}

const clouds: Readonly<Record<string, string>> = {
  feishu: "https://open.feishu.cn",
  lark: "https://open.larksuite.com",
};

/** Which app, on which platform: `feishu`, `lark` or a base URL. */
interface AppPlace {
  appId: string;
  domain: string;
}

/** The developer console's page of the app. */
export function consoleLink({ appId, domain }: AppPlace): string {
  return `${clouds[domain] ?? domain.replace(/\/+$/, "")}/app/${encodeURIComponent(appId)}`;
}

/** The page that asks for these scopes at once: of the app itself, or of people. */
export function permissionLink(
  access: AppPlace,
  scopes: readonly string[],
  of: "tenant" | "user" = "tenant",
): string {
  return `${consoleLink(access)}/auth?q=${scopes.join(",")}&op_from=openapi&token_type=${of}`;
}
