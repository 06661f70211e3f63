{{- /* The labels of everything, and with a component those of one service, as JSON: (list $) or (list $ "reward") */ -}}
{{- define "rookery.labels" -}}
{{- $labels := dict "app.kubernetes.io/name" "rookery" "app.kubernetes.io/instance" (first .).Release.Name -}}
{{- range rest . }}{{ $_ := set $labels "app.kubernetes.io/component" . }}{{ end -}}
{{ toJson $labels }}
{{- end }}

{{- /* Turns numbers among the settings into text again: YAML reads a run or a tag of digits alone as one, and Helm would write
20261129 as 2.0261129e+07. */ -}}
{{- define "rookery.texts" -}}
{{- range $values := list .Values .Values.images -}}
{{- range $name, $value := $values -}}
{{- if kindIs "float64" $value -}}
{{- if ne $value (floor $value) }}{{ fail (printf "%s: %v is a number: quote it" $name $value) }}{{ end -}}
{{- $_ := set $values $name ($value | int64 | toString) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "rookery.redisSecret" -}}
{{ .Values.redis.secret | default (printf "%s-redis" .Release.Name) | quote }}
{{- end }}

{{- /* Changes with the users of Redis and with its password, so that an upgrade restarts who has them. */ -}}
{{- define "rookery.redisChecksum" -}}
{{ list (.Files.Get "files/users.acl") .Values.redis.password .Values.redis.secret | toJson | sha256sum }}
{{- end }}

{{- define "rookery.tokenSecret" -}}
{{ .Values.token.secret | default (printf "%s-token" .Release.Name) | quote }}
{{- end }}

{{- /* Where inference servers get versions from that they do not have; empty: from a volume. */ -}}
{{- define "rookery.adapterUrl" -}}
{{- $from := .Values.adapters.from -}}
{{- if eq $from "http" -}}
http://{{ .Release.Name }}-trainer:8003/adapters
{{- else if eq $from "store" -}}
{{ required "adapters.store: a URL such as s3://bucket/adapters, with adapters.from: store" .Values.adapters.store }}
{{- else if ne $from "volume" -}}
{{- fail (printf "adapters.from: %q is neither http, store nor volume" $from) -}}
{{- end -}}
{{- end }}

{{- /* A volume claim that outlives the release: (dict "root" $ "name" ... "size" ... "modes" ...) */ -}}
{{- define "rookery.claim" }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  labels: {{ include "rookery.labels" (list .root) }}
  annotations: { helm.sh/resource-policy: keep }
spec:
  accessModes: [{{ .mode }}]
  {{- with .root.Values.storageClass }}
  storageClassName: {{ quote . }}
  {{- end }}
  resources: { requests: { storage: {{ .size }} } }
{{- end }}

{{- /* The volume behind a mount: (dict "root" $ "mount" ... "service" $service) */ -}}
{{- define "rookery.volume" -}}
{{- $release := .root.Release.Name -}}
{{- if eq .mount "runs" }}persistentVolumeClaim: { claimName: {{ $release }}-runs }
{{- else if eq .mount "runs-read" }}
{{- if eq .root.Values.adapters.from "volume" }}persistentVolumeClaim: { claimName: {{ $release }}-runs, readOnly: true }
{{- else }}emptyDir: {}
{{- end }}
{{- else if eq .mount "archive-read" }}
{{- if contains "://" .root.Values.services.archive.env.ARCHIVE_OUT }}emptyDir: {}
{{- else }}persistentVolumeClaim: { claimName: {{ $release }}-archive, readOnly: true }
{{- end }}
{{- else if eq .mount "games" }}persistentVolumeClaim: { claimName: {{ quote .root.Values.games }}, readOnly: true }
{{- else if eq .mount "reward-model" }}persistentVolumeClaim: { claimName: {{ required "services.reward-model.claim: the claim with the reward model" .service.claim | quote }}, readOnly: true }
{{- else if eq .mount "scratch" }}emptyDir: {}
{{- else }}persistentVolumeClaim: { claimName: {{ $release }}-{{ .mount }} }
{{- end }}
{{- end }}
