import type { ReplyLanguage } from "@larkline/protocol";
import { inlineText } from "./answer.ts";

// What a person grants, in words: the names of the platform's scopes say little to people who wrote no app.

type Words = readonly [en: string, zh: string];

const words: Readonly<Record<string, Words>> = {
  "approval:approval:readonly": ["see approval forms", "查看审批定义"],
  "approval:instance:read": ["read your approvals", "查看你的审批内容"],
  "approval:task:list_by_user": ["see your approvals", "查看你的审批"],
  "approval:task:write": ["decide approvals for you", "替你处理审批"],
  "base:field:create": ["add fields to Base tables", "在多维表格中新增字段"],
  "base:field:delete": ["delete fields of Base tables", "删除多维表格的字段"],
  "base:field:read": ["see the fields of Base tables", "查看多维表格的字段"],
  "base:field:update": ["change fields of Base tables", "修改多维表格的字段"],
  "base:record:create": ["add records to Base tables", "在多维表格中新增记录"],
  "base:record:delete": ["delete records of Base tables", "删除多维表格的记录"],
  "base:record:retrieve": ["read records of Base tables", "查看多维表格的记录"],
  "base:record:update": ["change records of Base tables", "修改多维表格的记录"],
  "base:table:read": ["see Base tables", "查看多维表格的数据表"],
  "board:whiteboard:node:create": ["draw on whiteboards", "在画板上绘制"],
  "board:whiteboard:node:read": ["see what is on whiteboards", "查看画板的内容"],
  "board:whiteboard:node": ["see and change whiteboards", "查看和编辑画板"],
  "calendar:calendar.event:create": ["create events in your calendar", "在你的日历中创建日程"],
  "calendar:calendar.event:delete": ["delete events of your calendar", "删除你日历中的日程"],
  "calendar:calendar.event:read": ["see the events of your calendar", "查看你日历中的日程"],
  "calendar:calendar.event:reply": ["answer invitations for you", "替你回复日程邀请"],
  "calendar:calendar.event:update": ["change events of your calendar", "修改你日历中的日程"],
  "calendar:calendar.free_busy:read": ["see when people are busy", "查看忙闲信息"],
  "calendar:calendar:read": ["see your calendars", "查看你的日历"],
  "contact:user.basic_profile:readonly": [
    "see names and pictures of colleagues",
    "查看同事的姓名和头像",
  ],
  "contact:user:search": ["search for colleagues", "搜索同事"],
  "docs:document.comment:create": ["comment on documents", "评论文档"],
  "docs:document.comment:read": ["read comments on documents", "查看文档评论"],
  "docs:document.comment:update": ["resolve comments on documents", "解决文档评论"],
  "docs:document.content:read": ["read the content of documents", "查看文档内容"],
  "docs:document.media:upload": ["put pictures into documents", "在文档中插入图片"],
  "docs:document:copy": ["copy documents", "复制文档"],
  "docs:document:export": ["export documents that you can read", "导出你能查看的文档"],
  "docs:document:import": ["import files as documents", "把文件导入为文档"],
  "docs:permission.member:create": ["share documents with people", "把文档分享给他人"],
  "docs:permission.member:delete": ["take access to your files away", "取消他人对文件的权限"],
  "docs:permission.member:retrieve": ["see who has access to your files", "查看谁有文件的权限"],
  "docx:document": ["change and delete parts of your documents", "修改和删除文档内容"],
  "docx:document.block:convert": ["convert Markdown for documents", "把 Markdown 转换为文档内容"],
  "docx:document:create": ["create documents", "创建文档"],
  "docx:document:readonly": ["read documents", "查看文档"],
  "docx:document:write_only": ["change documents", "编辑文档"],
  "drive:drive.metadata:readonly": ["see names and owners of files", "查看文件的名称和所有者"],
  "drive:file:download": ["download files of your drive", "下载云空间的文件"],
  "drive:file:upload": ["upload files to your drive", "上传文件到云空间"],
  "im:chat:read": ["see your chats", "查看你的群聊"],
  "im:message": ["read and send messages", "查看和发送消息"],
  "im:message.group_msg:get_as_user": ["read messages of your groups", "查看你所在群的消息"],
  "im:message.p2p_msg:get_as_user": ["read your private messages", "查看你的单聊消息"],
  "im:message.reactions:read": ["see reactions to messages", "查看消息的表情回复"],
  "im:message.send_as_user": ["send messages in your name", "以你的名义发送消息"],
  "im:message:readonly": ["read messages that you can read", "查看你能看到的消息"],
  "mail:event": ["see when you get mails", "查看你何时收到邮件"],
  "mail:user_mailbox.message.address:read": ["see who wrote your mails", "查看邮件的收发件人"],
  "mail:user_mailbox.message.body:read": ["read the text of your mails", "查看邮件的正文"],
  "mail:user_mailbox.message.subject:read": ["see the subjects of your mails", "查看邮件的主题"],
  "mail:user_mailbox.message:modify": ["move and mark your mails", "整理和标记你的邮件"],
  "mail:user_mailbox.message:readonly": ["read your mails", "查看你的邮件"],
  "mail:user_mailbox.message:send": ["send mails in your name", "以你的名义发送邮件"],
  "minutes:minutes.artifacts:read": ["read summaries of minutes", "查看妙记的总结"],
  "minutes:minutes.basic:read": ["see your minutes", "查看你的妙记"],
  "minutes:minutes.search:read": ["search your minutes", "搜索你的妙记"],
  "minutes:minutes.transcript:export": ["export transcripts of minutes", "导出妙记的文字记录"],
  "search:docs:read": ["search documents that you can see", "搜索你能看到的文档"],
  "search:message": ["search your messages", "搜索你的消息"],
  "sheets:spreadsheet:read": ["read spreadsheets", "查看电子表格"],
  "sheets:spreadsheet:write_only": ["change spreadsheets", "编辑电子表格"],
  "space:document:delete": ["delete documents", "删除文档"],
  "space:document:move": ["move documents", "移动文档"],
  "space:document:retrieve": ["see what lies in your folders", "查看文件夹中的内容"],
  "space:folder:create": ["create folders", "新建文件夹"],
  "task:comment:read": ["read comments on your tasks", "查看任务的评论"],
  "task:comment:write": ["comment on tasks", "评论任务"],
  "task:task:read": ["see your tasks", "查看你的任务"],
  "task:task:write": ["create and change tasks", "创建和修改任务"],
  "vc:meeting.meetingevent:read": ["see when your meetings end", "查看你的会议何时结束"],
  "vc:meeting.search:read": ["search your meetings", "搜索你的会议"],
  "vc:note:read": ["read notes of meetings", "查看会议纪要"],
  "vc:room:readonly": ["see meeting rooms", "查看会议室"],
  "wiki:node:create": ["create wiki pages", "创建知识库页面"],
  "wiki:node:read": ["see wiki pages", "查看知识库页面"],
  "wiki:node:retrieve": ["find wiki pages", "查找知识库页面"],
  "wiki:space:retrieve": ["see wiki spaces", "查看知识库"],
};

/** A scope as a person reads it; undefined where it is not known. */
export function wordsOfScope(scope: string, language: ReplyLanguage): string | undefined {
  return Object.hasOwn(words, scope) ? words[scope]?.[language === "zh" ? 1 : 0] : undefined;
}

/** A scope as a person reads it, as markdown; one that is not known by its name. */
export function scopeWords(scope: string, language: ReplyLanguage): string {
  return wordsOfScope(scope, language) ?? inlineText(scope.slice(0, 200));
}
