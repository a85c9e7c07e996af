{{- define "forebay.name" -}}
{{- if contains "forebay" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-forebay" (.Release.Name | trunc 42 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "forebay.selector" -}}
app.kubernetes.io/name: forebay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "forebay.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "forebay.config" -}}
{{- if regexMatch "(?m)^\\s*shutdown_(delay|timeout)\\s*=" .Values.config }}
{{- fail "config: shutdown_delay and shutdown_timeout are values of `shutdown`, which the grace period of the pods is made of" }}
{{- end -}}
shutdown_delay = "{{ int .Values.shutdown.delay }}s"
shutdown_timeout = "{{ int .Values.shutdown.timeout }}s"

{{ .Values.config }}
{{- end }}

{{- /* In namespaces that are not the release's own, where releases of the same name meet. No namespace has a dot. */}}
{{- define "forebay.endpoint-slices" -}}
{{ include "forebay.name" . }}-endpoint-slices.{{ .Release.Namespace }}
{{- end }}
